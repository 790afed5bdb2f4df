"""Warnings: models that can be fitted but hardly mean what they say. A checked model comes in, cautions come out."""

from gpdsl.language.warnings.report import Report, find_warnings
