"""Every name that the page on notation gives is there."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "notation.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`((?:inference|program|kernels)\.[\w.]+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_names_in_code_exist(name: str) -> None:
    words = name.split(".")
    module = next(n for n in range(len(words), 0, -1) if _module(".".join(words[:n])))
    found = import_module("gpdsl." + ".".join(words[:module]))
    for word in words[module:]:
        known = {field.name for field in fields(found)} if is_dataclass(found) else set[str]()
        assert hasattr(found, word) or word in known or word in getattr(found, "__annotations__", {}), name
        found = getattr(found, word, None)


def _module(name: str) -> bool:
    try:
        import_module("gpdsl." + name)
    except ModuleNotFoundError:
        return False
    return True


def test_the_page_names_many() -> None:
    assert len(NAMES) > 20
