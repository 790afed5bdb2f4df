"""Syntax tree in, checked declarations out (`check`); every name resolved, every axis known, or a ModelError."""

from gpdsl.language.checker.check import check, compile_text
