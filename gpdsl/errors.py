"""The one exception type and the one warning that a user can meet, and nothing else."""

from __future__ import annotations


class GpdslError(Exception):
    """Base of every error a user can cause; its text says where, what was expected and what to do."""


class GpdslWarning(UserWarning):
    """Base of every warning of a computation that goes on nevertheless."""
