"""Names of a model, and what an expression reads, as LaTeX: `sigma` is σ, `ell_g` is ℓ with subscript g.

`depth0` is depth with subscript 0. Rows and axes are subscripts, latents stand at their inputs, vectors are bold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpdsl.language import model as m

_SMALL = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
    *("nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "ell"),
)
_CAPITAL = ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega")
_VARIANTS = {"epsilon": r"\varepsilon", "phi": r"\varphi"}
UNICODE = dict(zip("αβγδεζηθικλμνξπρστυφχψωℓ", _SMALL, strict=True)) | dict(zip("ΓΔΘΛΞΠΣΥΦΨΩ", _CAPITAL, strict=True))
_SQUARES = frozenset({"s2", "sigma2", "tau2"})
"""Variances by habit: `s2` is printed as the square of s, `s2_f` with a subscript, unless the model has an `s` too."""

_ROW_LETTERS, _COUNT_LETTERS = "nimjkrtuvw", "NMRTKUVW"


@dataclass(frozen=True)
class Symbol:
    """How a name is printed: an upright, Greek or italic `base`, subscripts of its own, and perhaps a square."""

    base: str
    subscripts: tuple[str, ...] = ()
    square: bool = False

    def render(self, subscripts: Iterable[str] = (), *, bold: bool = False, prime: bool = False) -> str:
        """The symbol with further subscripts; bold for a vector, primed for the second point of a kernel."""
        below = joined([*self.subscripts, *subscripts])
        above = "2" if self.square else ""
        base = _bold(self.base) if bold else self.base
        text = base + (f"_{{{below}}}" if len(below) > 1 else f"_{below}" if below else "")
        return text + (f"^{above}" if above else "") + ("'" if prime else "")


def joined(parts: Sequence[str]) -> str:
    """Subscripts side by side, `np`, or with commas when one of them is longer than a letter."""
    single = all(len(part) == 1 or re.fullmatch(r"\\[a-z]+", part) for part in parts)
    digits = any(a[-1].isdigit() and b[0].isdigit() for a, b in zip(parts, parts[1:], strict=False))
    if not single or digits:
        return ",".join(parts)
    return "".join(f"{part} " if part.startswith("\\") else part for part in parts).strip()


def _bold(base: str) -> str:
    if base.startswith(r"\mathrm{"):
        return base.replace(r"\mathrm{", r"\mathbf{", 1)
    return rf"\boldsymbol{{{base}}}" if base.startswith("\\") else rf"\mathbf{{{base}}}"


def escaped(text: str) -> str:
    """Text of the user's in LaTeX's text mode."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {each: f"\\{each}" for each in "&%$#_{}"}
    return "".join(special.get(each, each) for each in text)


def upright(word: str) -> str:
    """A word in roman type; letters beyond ASCII need text mode."""
    return rf"\mathrm{{{escaped(word)}}}" if word.isascii() else rf"\text{{{escaped(word)}}}"


def word_symbol(word: str) -> str:
    """One word: a Greek letter by its name or itself, a single letter, or several letters upright."""
    word = UNICODE.get(word, word)
    if word in _SMALL or word in _CAPITAL:
        return _VARIANTS.get(word, f"\\{word}")
    if word.isdigit() or (len(word) == 1 and word.isascii()):
        return word
    return upright(word)


def _is_letter(word: str) -> bool:
    return len(word) == 1 or word in _SMALL or word in _CAPITAL


def symbol_of(name: str) -> Symbol:
    """The symbol of a name by itself, without regard to the other names of the model."""
    head, *tail = name.split("_")
    if head in _SQUARES and "" not in tail:
        return Symbol(word_symbol(head[:-1]), tuple(word_symbol(each) for each in tail), square=True)
    number = re.fullmatch(r"(.*\D)(\d+)", head)
    if number and number[1].isidentifier():
        head, tail = number[1], [number[2], *tail]
    if not head or "" in tail or not (_is_letter(head) or all(len(t) == 1 or t.isdigit() for t in tail)):
        return Symbol(upright(name))
    return Symbol(word_symbol(head), tuple(word_symbol(each) for each in tail))


class Symbols:
    """The symbols of one model: distinct names look different, and no letter means two things."""

    def __init__(self, declarations: m.Declarations) -> None:
        d = declarations
        tables = (d.indices, d.inputs, d.outputs, d.consts, d.params, d.rows, d.latents, d.lets, d.functions)
        names = [name for table in tables for name in table]
        vectors = {name for table in tables[1:-1] for name in table if d.axes_of(name)}  # type: ignore[attr-defined]
        self._symbols = _distinct(names, vectors)
        axes = list(_axes(declarations))
        taken = {*names, *(axis.dimension for axis in axes if axis.dimension)}
        self.row = next(each for each in _ROW_LETTERS if each not in taken)
        self.count = next(each for each in _COUNT_LETTERS if each not in taken)
        self._bare = _bare_letters(axes, {*taken, self.row})

    def of(self, name: str) -> Symbol:
        """The symbol of a declared name, or of an argument of a definition."""
        return self._symbols.get(name) or symbol_of(name)

    def index(self, axis: m.Axis) -> str:
        """What runs along an axis: its index, or a letter for a bare size."""
        return self.of(axis.name).render() if axis.name is not None else self._bare.get(axis, "j")

    def size(self, axis: m.Axis) -> str:
        """The number of elements along an axis."""
        if axis.size is not None:
            return str(axis.size)
        # Inside a definition, only a call says how many there are.
        return "" if str(axis.dimension).startswith("?") else symbol_of(str(axis.dimension)).render()


def _distinct(names: Iterable[str], vectors: Collection[str]) -> dict[str, Symbol]:
    """A symbol for each name; one that would look like another's, or like an element of it, is written out."""
    chosen: dict[str, Symbol] = {}
    known = list(dict.fromkeys(names))
    elements = {symbol_of(name).base for name in vectors if not symbol_of(name).subscripts}
    bases = {symbol_of(name).base for name in known if not symbol_of(name).square}
    seen: set[str] = set()
    for name in sorted(known, key=len):  # longer names give way
        symbol = symbol_of(name)
        numbered = any(each.isdigit() and each != "0" for each in symbol.subscripts)
        if (numbered and symbol.base in elements) or (symbol.square and symbol.base in bases):
            symbol = Symbol(upright(name))
        if symbol.render() in seen:  # two spellings of one letter: `sigma` and `σ`
            symbol = Symbol(rf"\mathtt{{{escaped(name)}}}" if name.isascii() else rf"\texttt{{{escaped(name)}}}")
        seen.add(symbol.render())
        chosen[name] = symbol
    return chosen


def _axes(declarations: m.Declarations) -> Iterable[m.Axis]:
    for _, axes in declarations.quantities():
        yield from axes
    for index in declarations.indices.values():
        yield index.axis
    for external in declarations.externals.values():
        yield from external.result


def _bare_letters(axes: Iterable[m.Axis], taken: Collection[str]) -> dict[m.Axis, str]:
    letters: dict[m.Axis, str] = {}
    for axis in axes:
        if axis.name is None and axis not in letters:
            own = [axis.dimension.lower()] if axis.dimension and len(axis.dimension) == 1 else []
            free = (each for each in [*own, *"djklhabceg"] if each not in taken and each not in letters.values())
            letters[axis] = next(free, "j")
    return letters


# What indices run over: `p = 1, ..., P`, also where guards leave a part of them.

_RELATIONS = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "!=": r"\ne", "==": "="}


def index_range(symbols: Symbols, axis: m.Axis) -> str:
    """`p = 1, \\dots, P`."""
    return f"{symbols.index(axis)} = {_run('1', symbols.size(axis))}"


def _run(first: str, last: str) -> str:
    if first == last:
        return first
    if last.isdigit() and int(last) - int(first) <= 2:
        return ", ".join(str(each) for each in range(int(first), int(last) + 1))
    return rf"{first}, \dots, {last}"


def row_range(symbols: Symbols) -> str:
    """`n = 1, \\dots, N`."""
    return rf"{symbols.row} = 1, \dots, {symbols.count}"


def guarded(symbols: Symbols, axis: m.Axis, guard: m.Guard | None) -> str:
    """The values of an axis for which a guard holds."""
    index, size = symbols.index(axis), symbols.size(axis)
    match guard:
        case None | m.Guard(operator="all"):
            return index_range(symbols, axis)
        case m.Guard(operator=">", value=value):
            return f"{index} = {_run(str(value + 1), size)}"
        case m.Guard(operator=">=", value=value):
            return f"{index} = {_run(str(value), size)}"
        case m.Guard(operator="<", value=value):
            return f"{index} = {_run('1', str(value - 1))}"
        case m.Guard(operator="<=", value=value):
            return f"{index} = {_run('1', str(value))}"
    return condition(symbols, axis, guard)


def condition(symbols: Symbols, axis: m.Axis, guard: m.Guard) -> str:
    """A guard as a condition: `p > 1`."""
    return f"{symbols.index(axis)} {_RELATIONS[guard.operator]} {guard.value}"


def quantified(
    symbols: Symbols, axes: Sequence[m.Axis], guards: Sequence[m.Guard] = (), *, rows: bool = False
) -> tuple[str, str]:
    """Everything a line holds for: with ranges, and in short."""
    every: Sequence[m.Guard | None] = guards or [None] * len(axes)
    pairs = list(zip(axes, every, strict=True))
    ranges = [guarded(symbols, axis, guard) for axis, guard in pairs]
    free = [symbols.index(axis) for axis, guard in pairs if guard is None or guard.operator == "all"]
    told = [condition(symbols, axis, guard) for axis, guard in pairs if guard is not None and guard.operator != "all"]
    letters = ", ".join([*([symbols.row] if rows else []), *free])
    long = [*([row_range(symbols)] if rows else []), *ranges]
    short = [*([rf"\forall\, {letters}"] if letters else []), *told]
    return r",\; ".join(long), r",\; ".join(short)


def levels(index: m.Index) -> str:
    """The levels an index lists."""
    shown = (rf"\text{{{escaped(each)}}}" if isinstance(each, str) else str(each) for each in index.levels or ())
    return rf"\{{{', '.join(shown)}\}}"


# What an expression reads, as LaTeX: subscripts for rows and axes, latents at their inputs, vectors in bold.


@dataclass(frozen=True)
class Reads:
    """Prints what stands in one place.

    `varying`: the quantities that differ between rows. `row`: they carry the letter of the row; without it inputs are
    the arguments of a Gaussian process. `prime`: inputs are the second point of a kernel. `hidden`: components along
    axes are not written, for a vector. `own`: the axes of the left side; bare sizes stand for the named ones. `summed`:
    axes bound by a sum.
    """

    declarations: m.Declarations
    symbols: Symbols
    varying: frozenset[str]
    row: bool = True
    prime: bool = False
    hidden: bool = False
    own: tuple[m.Axis, ...] = ()
    summed: tuple[m.Axis, ...] = field(default=())

    def summing(self, axis: m.Axis) -> Reads:
        """The same place inside a sum over an axis."""
        return replace(self, summed=(*self.summed, axis))

    def arity(self, function: str, given: int) -> int:
        """How many of the arguments stand before the semicolon."""
        declared = self.declarations.functions.get(function)
        return len(declared.arguments) if declared is not None else given

    def position(self, axis: m.Axis) -> str:
        """What runs along an axis here; nothing when a vector is meant."""
        if self.hidden:
            return ""
        if axis.name is None and axis not in self.summed:
            same = next((each for each in self.own if each.name is not None and m.same_axis(each, axis)), axis)
            return self.symbols.index(same)
        return self.symbols.index(axis)

    def is_free(self, expression: m.Expression) -> bool:
        """Whether an expression is a whole array here: nothing on the left or outside runs along one of its axes."""
        return any(not any(m.same_axis(axis, each) for each in (*self.own, *self.summed)) for axis in expression.axes)

    def subscript(self, subscript: m.Subscript) -> str:
        """One subscript: `p`, `p-1`, `2`."""
        match subscript:
            case m.Fixed(position=position):
                return str(position)
            case m.Whole(axis=axis):
                return self.position(axis)
            case m.Slice(axis=axis, start=start):
                running = self.position(axis)
                last = str(start + axis.size - 1) if axis.size is not None else self.symbols.size(axis)
                return (f"{running}+{start - 1}" if start > 1 else running) if running else f"{start}:{last}"
            case m.IndexValue(index=index, offset=offset):
                shift = f"{offset:+d}" if offset else ""
                return f"{self.symbols.of(index).render()}{shift}"
            case m.Level(name=name):
                return self.symbols.of(name).render()
            case m.At(input=label):
                return self.symbols.of(label).render([self.symbols.row] if self.row else [])
        raise TypeError(subscript)

    def is_whole(self, read: m.Read) -> bool:
        """Whether every element is read, each at its own place (`depth` for `depth[layer]`), or a range of them."""
        pairs = zip(read.subscripts, self.declarations.axes_of(read.name), strict=False)
        if any(isinstance(each, m.At) for each in read.subscripts):
            return False
        return any(not isinstance(each, m.Fixed) for each in read.subscripts) and all(
            each == m.IndexValue(axis.name or "") if isinstance(each, m.IndexValue) else True for each, axis in pairs
        )

    def read(self, read: m.Read, *, whole: bool = False) -> str:
        """A value read; `whole` for all elements at once, in bold."""
        here = replace(self, hidden=True) if whole else self
        latent = self.declarations.latents.get(read.name)
        own = len(read.subscripts) - (0 if latent is None else len(latent.levels))
        below, levels = here._shown(read.subscripts[:own], whole), here._shown(read.subscripts[own:], whole)
        bold = whole and any(not isinstance(each, m.Fixed) for each in read.subscripts)
        functional = read.functional
        if levels and latent is not None and len(levels) == len(latent.levels):
            functional = replace(functional, at=latent.at_levels(functional.at, tuple(levels)))
        elif latent is not None and latent.levels:  # all of them: a vector, and no argument
            functional = replace(functional, at=latent.at_levels(functional.at, ("",) * len(latent.levels)))
        return self.quantity(read.name, below, bold=bold, functional=functional)

    def _shown(self, subscripts: Sequence[m.Subscript], whole: bool) -> list[str]:
        """Subscripts as they are written; of a whole only those that choose."""
        kept = [each for each in subscripts if not whole or isinstance(each, m.Fixed | m.Slice | m.At)]
        return [text for each in kept if (text := self.subscript(each))]

    def quantity(
        self, name: str, below: Sequence[str] = (), *, bold: bool = False, functional: m.Functional = m.VALUE
    ) -> str:
        """A quantity with these subscripts: of this row when it differs between rows, a latent at its inputs."""
        symbol = self.symbols.of(name)
        latent = self.declarations.latents.get(name)
        if latent is not None and latent.over is not None and len(below) > len(latent.axes):
            at = ", ".join(self.point(each, below[-1]) for each in latent.arguments)
            return f"{symbol.render(below[:-1])}({at})"
        if latent is not None and latent.over is None and self.row:
            return self._latent(name, symbol.render(below, bold=bold), functional)
        prime = self.prime and (name in self.varying or name in self.declarations.indices)
        row = [self.symbols.row] if self.row and name in self.varying else []
        return symbol.render([*row, *below], bold=bold, prime=prime)

    def _latent(self, name: str, shown: str, functional: m.Functional) -> str:
        latent = self.declarations.latents[name]
        if functional.integrated:
            low, high = (each if m.is_number(each) else self.argument(each) for each in functional.at)
            over = self.symbols.of(latent.arguments[0]).render([])
            return rf"\int_{{{low}}}^{{{high}}} {shown}({over})\, \mathrm{{d}}{over}"
        inputs = functional.at or latent.arguments
        pairs = zip(inputs, latent.arguments, strict=True)
        levels = {axis.name for axis in latent.levels}
        shown_at = [each if own in levels and each != own else self.argument(each) for each, own in pairs]
        at = f"({', '.join(filter(None, shown_at))})"
        if not functional.derivative:
            return f"{shown}{at}"
        return self._derivative(latent, shown, functional.derivative, at)

    def _derivative(self, latent: m.Latent, shown: str, along: Sequence[m.Direction], at: str) -> str:
        order = f"^{len(along)}" if len(along) > 1 else ""
        below = r"\, ".join(rf"\partial {self._column(latent, each)}" for each in along)
        return rf"\frac{{\partial{order} {shown}}}{{{below}}}{at}"

    def _column(self, latent: m.Latent, direction: m.Direction) -> str:
        name = latent.arguments[direction.argument]
        along = direction.column
        shown = str(along) if isinstance(along, int) else self.subscript(along)
        column = [shown] if self.declarations.axes_of(name) else []
        return self.symbols.of(name).render(column)

    def argument(self, name: str) -> str:
        """An argument of a latent, whole: a vector in bold, another latent at its own inputs, a point of a field."""
        if name in self.declarations.consts:
            index = self.symbols.index(self.declarations.consts[name].axes[0])
            return self.point(name, f"{index}'" if self.prime else index)
        return self.quantity(name, bold=bool(self.declarations.axes_of(name)))

    def point(self, name: str, place: str) -> str:
        """One of the points of a field."""
        return self.symbols.of(name).render([place], bold=bool(self.declarations.columns_of(name)))

    def local(self, name: str, subscripts: Sequence[m.Subscript], axes: Sequence[m.Axis]) -> str:
        """An argument inside a definition."""
        below = [text for each in subscripts if (text := self.subscript(each))]
        return self.symbols.of(name).render(below or [self.position(axis) for axis in axes])
