"""Free sizes: which number each dimension letter stands for, learnt from the arrays as they are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpdsl.data.errors import DataError, listed
from gpdsl.data.mistakes import SizesDisagree, UnboundSize
from gpdsl.language.model import Axis, Const, Declaration, Declarations, Index, Input, Output, Param


class Sizes:
    """Letter by letter: given by an earlier fit, written out as a list in the model, or learnt from data."""

    def __init__(self, declarations: Declarations, given: Mapping[str, int], source: str) -> None:
        self._declarations = declarations
        self._source = source
        self._sizes = dict(given)
        self._origin = dict.fromkeys(given, "the earlier fit")
        self._learn_from_lists()

    def of(self, axis: Axis) -> int | None:
        """The size of an axis, None while it is unknown."""
        return axis.size if axis.dimension is None else self._sizes.get(axis.dimension)

    def why(self, axes: tuple[Axis, ...]) -> str:
        """What the size of the first axis comes from, to end a sentence about what was expected."""
        letter = axes[0].dimension if axes else None
        origin = self._origin.get(letter) if letter is not None else None
        return "the model" if origin is None else origin

    def learn(self, quantity: Input | Output, shape: tuple[int, ...]) -> None:
        """Take the sizes of an array that was found. Raises DataError when a letter already means another size."""
        for axis, size in zip(quantity.axes, shape, strict=True):
            if axis.dimension is not None:
                self._learn(axis.dimension, size, quantity.name)

    def learn_levels(self, index: Index, count: int) -> None:
        """Take the number of labels found in the data as the size of their index."""
        if index.axis.dimension is not None:
            self._learn(index.axis.dimension, count, index.name)

    def bound(self) -> dict[str, int]:
        """Every letter of the model and its size. Raises DataError for one nothing determines."""
        users: dict[str, list[str]] = {}
        for declaration, axes in self._quantities():
            for axis in axes:
                if axis.dimension is not None:
                    users.setdefault(axis.dimension, []).append(declaration.name)
        loose = [
            UnboundSize(letter, listed(dict.fromkeys(f"`{name}`" for name in names)))
            for letter, names in users.items()
            if letter not in self._sizes
        ]
        if loose:
            raise DataError(*loose, source=self._source)
        return {letter: self._sizes[letter] for letter in users} | self._sizes

    def _quantities(self) -> Iterator[tuple[Declaration, tuple[Axis, ...]]]:
        model = self._declarations
        for table in (model.inputs, model.outputs, model.consts, model.params, model.rows, model.latents, model.lets):
            for declaration in table.values():
                yield declaration, model.axes_of(declaration.name)
        labelled: list[Input | Output] = [*model.inputs.values(), *model.outputs.values()]
        for each in labelled:
            if each.label is not None:
                yield each, (each.label,)

    def _learn_from_lists(self) -> None:
        """`const a[p] = [1, 2, 3]` says that `p` has three values."""
        lists: list[Const | Param] = [*self._declarations.consts.values(), *self._declarations.params.values()]
        for declared in lists:
            values = declared.values if isinstance(declared, Const) else declared.initial
            for axis in declared.axes:
                if not isinstance(values, tuple):
                    break
                if axis.dimension is not None:
                    self._learn(axis.dimension, len(values), declared.name)
                values = values[0] if values else 0.0

    def _learn(self, letter: str, size: int, name: str) -> None:
        known = self._sizes.setdefault(letter, size)
        if known != size:
            problem = SizesDisagree(letter, name, size, self._origin[letter], known)
            raise DataError(problem, source=self._source)
        self._origin.setdefault(letter, f"`{name}`")
