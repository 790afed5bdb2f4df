"""Text to syntax tree: every statement that has the form of one, and a mistake for every one that has not."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from gpdsl.language.errors import names as wrong
from gpdsl.language.errors.base import Mistake
from gpdsl.language.errors.limits import LineTooLong, TextTooLong, TooDeep, TooManyStatements
from gpdsl.language.habits import (
    BLOCK,
    BLOCKS,
    FORMS,
    KERNELS as HABITS,
    SIGNS,
    STARTS,
    bounds_habit,
    derivative_habit,
    noise_habit,
    standardise_habit,
    word_habit,
)
from gpdsl.language.syntax import Statement, SyntaxTree
from gpdsl.language.transform import ToSyntax
from gpdsl.language.vocabulary import (
    DISTRIBUTIONS,
    KERNELS,
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_LINE,
    MAX_STATEMENTS,
    OBSERVATION_FORM,
    STATEMENTS,
    Source,
    Span,
    closest,
    shipped,
)

# Cut the text into statements: at line ends outside brackets, so that each is parsed, and fails, on its own.

_PARTNER = {"(": ")", "[": "]", "{": "}"}
_MARK = re.compile(r'"[^"\n]*"|"|#[^\n]*|\n|[()\[\]{}]')
_WORD = re.compile(r"[^\W\d]\w*")
# Nothing inside a bracket looks like this, so a bracket still open before such a line was never closed.
_STATEMENT = rf"(?:{'|'.join(STATEMENTS)})[ \t]+[^\W\d]|use[ \t]+\x22"
_RESTART = re.compile(rf"[ \t]*(?:{_STATEMENT}|[^\W\d]\w*[ \t]*(?:\[[^\[\]\n]*\])?[ \t]*~)")


@dataclass(frozen=True)
class Piece:
    """The text of one statement, beginning at the start of line `line`; `broken` when its brackets already fail."""

    text: str
    line: int
    broken: bool = False

    def words(self, count: int = 2) -> tuple[str, ...]:
        """Its first words: the statement word and the name that follows, or the name of an observed output."""
        found = []
        for match in _WORD.finditer(self.text):
            found.append(match.group())
            if len(found) == count:
                break
        return tuple(found)


def split(source: Source) -> tuple[list[Piece], list[Mistake]]:
    """The statements of a text, and what is wrong with its size, brackets and quotation marks."""
    start = Span(1, 1, 1, 2)
    if len(source.text) > MAX_CHARACTERS:
        return [], [TextTooLong(start, len(source.text), MAX_CHARACTERS)]
    for number, line in enumerate(source.text.split("\n"), 1):
        if len(line) > MAX_LINE:
            return [], [LineTooLong(Span(number, MAX_LINE, number, MAX_LINE + 1), len(line), MAX_LINE)]
    return _Splitter(source).run()


@dataclass
class _Splitter:
    """One pass over brackets, texts, comments and line ends."""

    source: Source
    pieces: list[Piece] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    open: list[tuple[str, Span]] = field(default_factory=list)
    line: int = 1
    line_start: int = 0
    piece_line: int = 1
    piece_start: int = 0
    broken: bool = False

    def run(self) -> tuple[list[Piece], list[Mistake]]:
        text, starts = self.source.text, {each.line for each in self.source.parts}
        for match in _MARK.finditer(text):
            mark = match.group()
            start = match.start()
            column = start - self.line_start + 1
            span = Span(self.line, column, self.line, column + match.end() - start)
            if mark == "\n":
                if not self.open or self.line + 1 in starts or _RESTART.match(text, start + 1):
                    self._finish(start)
                    self.piece_line, self.piece_start = self.line + 1, start + 1
                self.line, self.line_start = self.line + 1, start + 1
            elif mark == "{" and BLOCK.fullmatch(text[self.piece_start : start]):
                return [], [wrong.Unexpected(span, "{", "a statement on each line", STATEMENTS["input"], BLOCKS)]
            elif mark in _PARTNER:
                self.open.append((mark, span))
                if len(self.open) == MAX_DEPTH + 1:
                    self._reject(TooDeep(span, MAX_DEPTH))
            elif mark in ")]}":
                self._close(mark, span)
            elif mark == '"':
                self._reject(wrong.TextNeverClosed(span))
            if len(self.pieces) > MAX_STATEMENTS:
                place = Span(self.piece_line, 1, self.piece_line, 2)
                return [], [TooManyStatements(place, MAX_STATEMENTS)]
        self._finish(len(text))
        return self.pieces, self.mistakes

    def _close(self, mark: str, span: Span) -> None:
        if self.open and _PARTNER[self.open[-1][0]] == mark:
            self.open.pop()
            return
        advice = f"remove the `{mark}`"
        if self.open:
            bracket, place = self.open.pop()
            line = self.source.number(place.line)
            advice = f"the `{bracket}` of line {line}, column {place.column} is closed by `{_PARTNER[bracket]}`"
        self._reject(wrong.NeverOpened(span, mark, advice))

    def _finish(self, end: int) -> None:
        if self.open:
            bracket, span = self.open[-1]
            self._reject(wrong.NeverClosed(span, bracket, _PARTNER[bracket]))
        text = self.source.text[self.piece_start : end]
        bare = text.lstrip()
        if bare and not (bare.startswith("#") and "\n" not in bare):
            self.pieces.append(Piece(text, self.piece_line, self.broken))
        self.open, self.broken = [], False

    def _reject(self, mistake: Mistake) -> None:
        # One bracket error per statement: the ones after it are its consequences.
        if not self.broken:
            self.mistakes.append(mistake)
        self.broken = True


# What Lark could not read, in the words of someone who writes models.

_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "TEXT": "a text in quotes",
    "COMPARISON": "a comparison",
    "$END": "the end of the line",
}
_OPERATORS = frozenset("+-*/^")
_FORMS = dict(FORMS) | dict(STATEMENTS) | {"external likelihood": "external likelihood g(y: real | a: real[4])"}
_TWO_WORDS = re.compile(r"[ \t]*([^\W\d]\w*)[ \t]+([^\W\d]\w*)")
_ASSIGNMENT = re.compile(r"[ \t]*([^\W\d]\w*)[ \t]*(?:\[[^\]=]*\])?[ \t]*=(?!=)[ \t]*(\w*)")
_MEMBER = re.compile(r"\.(?:[^\W\d]\w*\.)*([^\W\d]\w*)(\(?)")
_CALLED = re.compile(r"([^\W\d]\w*)\(")
_DECLARED = re.compile(r"[ \t]*([^\W\d]\w*)[ \t]*:[ \t]*([^\W\d]\w*)")
_SEVERAL = re.compile(r"\s*(param|input|output)\s+(\w+)\s*,")
"""A statement that declares a second name, up to the comma."""

_SIZED = re.compile(r"\s*(param|input|output)\s+(\w+)\s*\[\s*$")
"""A declaration up to the bracket of a size behind the name."""
_LEVELS = (
    "words of a label are not compared in a model: what differs from level to level has its index, "
    "`param b[s] : real`, read as `b[site]` with `input site : label[s]`"
)
_CONDITION = "let g = if x > 0 then f else 1"
_KERNEL_BY_NAME = (
    "kernels of the table are written where they are used, `latent f(x) ~ GP(0, RBF(ell) + White())`; a formula has "
    "its arguments, `kernel k(r; ell) = exp(-r/ell)`"
)
_LONGEST = 40


def misspelt_statement(piece: Piece) -> Mistake | None:
    """A statement whose beginning already says what went wrong: `latnt f(x) ~ ...`, `g = f + 1`."""
    match = _TWO_WORDS.match(piece.text)
    if match and match.group(1) not in STATEMENTS:
        word, second = match.groups()
        span = _columns(piece, match.start(1), match.end(1))
        if second in DISTRIBUTIONS:
            return wrong.MissingTilde(span, word, second)
        known, habit = ", ".join(f"`{each}`" for each in STATEMENTS), STARTS.of(word) or word_habit(word)
        return wrong.UnknownStatement(span, word, known, "" if habit else closest(word, STATEMENTS), habit)
    match = _ASSIGNMENT.match(piece.text)
    if match:
        span = _columns(piece, match.start(1), match.end(1))
        if match.group(2) in DISTRIBUTIONS:
            return wrong.MissingTilde(span, *match.groups())
        return wrong.MissingKeyword(span, match.group(1), _made_by(match.group(1), piece.text[match.end() :]))
    return None


def _made_by(name: str, text: str) -> str:
    """What to write instead of `ell = pm.Gamma("ell", 2, 1)` and the like; nothing of a value without modules."""
    called = _CALLED.findall(text)
    if not _MEMBER.search(text):
        return next((noise_habit(each) for each in called if each in DISTRIBUTIONS), "")
    prior = next((each for each in called if each in DISTRIBUTIONS), "")
    if prior:
        support = DISTRIBUTIONS[prior].support
        kind = support if support in {"positive", "unit", "simplex", "correlation_factor"} else "real"
        return f"write `param {name} : {kind} ~ {prior}(...)` for a parameter, `{name} ~ {prior}(...)` for an output"
    kernels = {each: f"write `{each}(...)`" if each in KERNELS else HABITS.of(each) for each in called}
    kernel = next(filter(None, kernels.values()), "")
    return kernel and f"kernels stand in the line of their latent, `latent f(x) ~ GP(0, s2 * RBF(ell))`: {kernel}"


def _unseen(character: str) -> str:
    """What to do with a character without a meaning, and which it is where that is not seen."""
    instead = "write an ordinary space" if character.isspace() else "remove it"
    name = unicodedata.name(character, "a control character").lower()
    return instead if character.isprintable() else f"this is {name}, U+{ord(character):04X}: {instead}"


def misread(problem: UnexpectedInput, piece: Piece, lark: Lark) -> Mistake:
    """The mistake behind an exception of the parser."""
    form = _form(piece)
    if isinstance(problem, UnexpectedCharacters):
        character = problem.char
        span = Span(problem.line + piece.line - 1, problem.column, problem.line + piece.line - 1, problem.column + 1)
        called = _MEMBER.match(piece.text, problem.pos_in_stream or 0) if character == "." else None
        if called and called[1] != "Normal":
            alone = piece.text[: called.start()].strip().isidentifier()
            habit = (
                alone and _made_by("a", piece.text[called.start() :])
            ) or f"write `{called[1]}{called[2] and '(...)'}`"
            return wrong.StrangeCharacter(span, character, f"names have no modules: {habit}")
        return wrong.StrangeCharacter(span, character, SIGNS.get(character) or _unseen(character))
    if not isinstance(problem, UnexpectedToken):
        raise problem
    token = problem.token
    if token == ";":
        span = Span(token.line + piece.line - 1, token.column, token.line + piece.line - 1, token.column + 1)
        return wrong.StrangeCharacter(span, ";", SIGNS[";"])
    expected = _expected(problem.accepts or problem.expected, lark)
    if token.type == "$END":
        return wrong.EndsEarly(_end(piece), expected, form, standardise_habit(piece.text))
    line = token.line + piece.line - 1
    if token == "*" and piece.text[: token.start_pos].endswith("*"):
        return wrong.PowerSign(Span(line, token.column - 1, line, token.column + 1))
    if token == "then" and "comparison" in expected:
        form = "if f > 0 then 1 else 2"
    if token in ("if", "<", ">", "<=", ">=", "==", "!=") and "comparison" not in expected:
        form = "param sigma : real(lower = 0)" if piece.text.lstrip().startswith("param ") else _CONDITION
    if token == "~" and piece.text.lstrip().startswith("param "):
        form = "param a : real ~ Normal(0, 1)"
    span = Span(line, token.column, line, token.column + len(token))
    declared = _DECLARED.match(piece.text) if token == ":" else None
    if declared and declared[1] not in STATEMENTS:
        habit = f"say first what it is: `param {declared[1]} : {declared[2]}`, `input ...` or `output ...`"
        return wrong.Unexpected(span, ":", expected, form, habit)
    several = _SEVERAL.match(piece.text) if token == "," else None
    if several and several.end() == token.end_pos:
        kind, name = several.groups()
        habit = f"declare one name a line: `{kind} {name} : ...`, and each of the others on a line of its own"
        return wrong.Unexpected(span, ",", expected, form, habit)
    shown = str(token) if len(token) <= _LONGEST else str(token)[:_LONGEST] + "…"
    before = piece.text[: token.start_pos]
    habit = (
        standardise_habit(before) or _sign_habit(piece.text, token.start_pos) or _token_habit(piece.text, before, token)
    )
    return wrong.Unexpected(span, shown, expected, form, habit)


def _token_habit(text: str, before: str, token: Token) -> str:
    """What to write instead where a statement is not read at a token, by what stands before it; empty elsewhere."""
    if sized := _SIZED.match(before):
        kind = re.search(r":\s*(\w+)", text)
        rather = f"{sized[1]} {sized[2]} : {kind[1] if kind else 'real'}[{token}]"
        return f"a size stands in the type: `{rather}`; in the name stands an index"
    if token.startswith('"') and before.rstrip().endswith(("==", "!=")):
        return _LEVELS
    if re.fullmatch(r"\s*index\s+\w+\s+in\s*\{\s*(\"?\w+\"?\s*,\s*)*", before) and token.isidentifier():
        return f'levels that are words stand in quotes: `"{token}"`'
    if token == "=" and before.startswith("kernel "):
        return _KERNEL_BY_NAME
    if token in ("=", ":") and re.fullmatch(r"\s*infer(\s+\w+)?\s*", before):
        return "the engine stands before a colon, options behind it: `infer mcmc: chains = 4`, `infer vi: beta = 0.5`"
    if token == "per" and (timed := re.search(r"(\w+)\s*:\s*time\s*$", before)):
        unit = re.match(r"per\s+(\w+)", text[len(before) :])
        return f"units stand in brackets: `input {timed[1]} : time(per = {unit[1] if unit else 'day'})`"
    if token == "~" and before.startswith("latent "):
        name, law = (before.split() + ["f"])[1], text[len(before) + 1 :].split("#")[0].strip()
        law = "Normal(0, 1)" if "\n" in law or not law or law.startswith("GP") else law
        return f"a function has its inputs, `latent {name}(x) ~ GP(0, RBF(1))`; a number that is not known is " + (
            f"`param {name} : real ~ {law}`, and one in each row `row {name} ~ Normal(0, 1)`"
        )
    bounds = bounds_habit(text) if token in ("in", "[", "(", "<", ">", "<=", ">=") else ""
    return bounds or derivative_habit(before, token)


def _sign_habit(text: str, at: int) -> str:
    """What to write instead of a sign of another tool that the place is part of; empty where there is none."""
    around = text[at - 1 : at + 1], text[at : at + 2], text[at : at + 1]
    return next((SIGNS[each] for each in around if each in SIGNS), "")


def _expected(names: set[str], lark: Lark) -> str:
    """The terminals that could stand here, as a reader would say it: signs as written, groups by their purpose."""
    patterns = {name: lark.get_terminal(name).pattern for name in names if name != "$END"}
    signs = {name: pattern.value for name, pattern in patterns.items() if isinstance(pattern, PatternStr)}
    words: list[str] = []
    rest = set(names)
    if {"NAME", "NUMBER"} <= rest and "(" in signs.values():
        words.append("a value")
        rest -= {"NAME", "NUMBER", *(name for name, sign in signs.items() if sign in ("(", "[", "-", "if", "not"))}
    if {sign for name, sign in signs.items() if name in rest} >= _OPERATORS:
        words.append("an operator")
        rest -= {name for name, sign in signs.items() if sign in _OPERATORS}
    words += sorted(
        (
            f"`{signs[name]}`" if name in signs else _WORDS.get(name, f"`{name.lower()}`")
            for name in rest
            if name != "$END"
        ),
        key=lambda word: (word.startswith("`"), word),
    )
    words += [_WORDS["$END"]] if "$END" in rest else []
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _form(piece: Piece) -> str:
    first, second = (*piece.words(), "", "")[:2]
    return _FORMS.get(f"{first} {second}") or _FORMS.get(first, OBSERVATION_FORM)


def _columns(piece: Piece, start: int, end: int) -> Span:
    return Span(piece.line, start + 1, piece.line, end + 1)


def _end(piece: Piece) -> Span:
    """Just after the last character that is not a blank or a comment."""
    kept = re.sub(r'("[^"\n]*")|#[^\n]*', lambda match: match.group(1) or " " * len(match.group()), piece.text).rstrip()
    line = piece.line + kept.count("\n")
    column = len(kept) - (kept.rfind("\n") + 1) + 1
    return Span(line, column, line, column + 1)


# Rules that add no operator of their own: brackets are counted by the splitter.
_WRAPPERS = frozenset({"group", "positional", "named", "at", "subscripts"})


@lru_cache(maxsize=1)
def grammar() -> Lark:
    """The parser of one statement, built from `grammar/gpm.lark` on first use."""
    text = shipped("grammar").joinpath("gpm.lark").read_text(encoding="utf-8")
    return Lark(
        text, parser="lalr", lexer="contextual", start="statement", propagate_positions=True, maybe_placeholders=True
    )


def parse(source: Source) -> SyntaxTree:
    """The syntax tree of a text. Never raises: what cannot be read is in `mistakes`, and its names in `lost`."""
    pieces, mistakes = split(source)
    statements: list[Statement] = []
    lost: set[str] = set()
    for piece in pieces:
        outcome = None if piece.broken else parse_piece(piece)
        if outcome is None or isinstance(outcome, Mistake):
            mistakes.extend([outcome] if outcome is not None else [])
            lost.update(piece.words())
        else:
            statements.append(outcome)
    return SyntaxTree(source, tuple(statements), tuple(mistakes), frozenset(lost))


def parse_piece(piece: Piece) -> Statement | Mistake:
    """The statement of one piece, or why it is none."""
    wrong_word = misspelt_statement(piece)
    if wrong_word is not None:
        return wrong_word
    try:
        tree = grammar().parse(piece.text)
    except UnexpectedInput as problem:
        return misread(problem, piece, grammar())
    # Operators may nest too deep to be walked by recursion, which is found without recursion.
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        depth += node.data not in _WRAPPERS
        if depth > MAX_DEPTH:
            first = piece.line + node.meta.line - 1
            return TooDeep(Span(first, node.meta.column, first, node.meta.column + 1), MAX_DEPTH)
        stack.extend((child, depth) for child in node.children if isinstance(child, Tree))
    return ToSyntax(piece.line).transform(tree)
