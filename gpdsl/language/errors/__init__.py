"""Every mistake of a model, as a value: E1xx syntax, E2xx names and axes, E3xx calls and values, E4xx limits."""

from gpdsl.language.errors.base import Mistake, ModelError
