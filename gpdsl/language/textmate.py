"""The TextMate grammar of `.gpm` text, for VS Code, Sublime Text, JetBrains and GitHub: `grammar/gpm.tmLanguage.json`.

`python -m gpdsl.language.textmate` prints it; a test keeps the file up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpdsl.language.coloured import Pattern, patterns

SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "comment": "comment.line.number-sign.gpm",
        "text": "string.quoted.double.gpm",
        "statement": "keyword.declaration.gpm",
        "declared": "entity.name.variable.gpm",
        "clause": "keyword.control.gpm",
        "logical": "keyword.operator.logical.gpm",
        "type": "storage.type.gpm",
        "argument": "variable.parameter.gpm",
        "family": "support.class.gpm",
        "constant": "constant.language.gpm",
        "function": "support.function.gpm",
        "number": "constant.numeric.gpm",
        "name": "variable.other.gpm",
        "operator": "keyword.operator.gpm",
        "punctuation": "punctuation.gpm",
    }
)
"""What TextMate calls each kind of `coloured.patterns`; colour themes know the first words."""


def textmate() -> str:
    """The grammar as JSON."""
    grammar = {
        "name": "gpm",
        "scopeName": "source.gpm",
        "fileTypes": ["gpm"],
        "patterns": [_pattern(each) for each in patterns()],
    }
    return json.dumps(grammar, indent=2) + "\n"


def _pattern(pattern: Pattern) -> dict[str, Any]:
    if len(pattern.kinds) == 1:
        return {"name": SCOPES[pattern.kinds[0]], "match": pattern.expression}
    captures = {str(number): {"name": SCOPES[kind]} for number, kind in enumerate(pattern.kinds, 1) if kind}
    return {"match": pattern.expression, "captures": captures}


if __name__ == "__main__":
    sys.stdout.write(textmate())
