"""Every test starts with nothing registered."""

from __future__ import annotations

import pytest

from gpdsl.forward import registry


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
