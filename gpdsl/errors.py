"""The one exception type a user can meet, and nothing else."""

from __future__ import annotations


class GpdslError(Exception):
    """Base of every error a user can cause; its text says where, what was expected and what to do."""
