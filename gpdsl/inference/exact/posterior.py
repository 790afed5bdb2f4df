"""What holds an exact posterior: the data in units of their noise, from which everything else follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.exact.crossing import loaded_by
from gpdsl.inference.exact.parts import Part
from gpdsl.inference.exact.whitening import Whitened
from gpdsl.inference.posteriors.family import Whitened as Inducing
from gpdsl.inference.posteriors.family import inverse_root
from gpdsl.inference.posteriors.features import factorise
from gpdsl.kernels.functionals import Functionals, every_point
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import Program

PLACES = "elements", "columns", "rows", "kept", "grid"
"""What a file keeps of a part."""


@dataclass(frozen=True, eq=False)
class Regression:
    """The data of an exact fit: each `Part` of the observations, and its values in units of their noise."""

    parts: tuple[Part, ...]
    values: tuple[Whitened, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many observed values each set has that shares no latent with others."""
        return tuple(size for part in self.parts for size in part.sizes)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        kept: dict[str, np.ndarray] = {}
        for number, (part, known) in enumerate(zip(self.parts, self.values, strict=True)):
            own = {name: getattr(part, name) for name in PLACES}
            own |= {"z": known.z, "loadings": known.loadings}
            kept |= {f"regression.{number}.{name}": np.asarray(v) for name, v in own.items() if v is not None}
        return kept

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Regression:
        """The posterior of a file."""
        parts: list[Part] = []
        values: list[Whitened] = []
        while (prefix := f"regression.{len(parts)}.") + "z" in arrays:
            own = {name: arrays.get(prefix + name) for name in (*PLACES, "z", "loadings")}
            values.append(Whitened(own.pop("z"), own.pop("loadings")))  # type: ignore[arg-type]  # checked by `check`
            parts.append(Part(**own))  # type: ignore[arg-type]
        return cls(tuple(parts), tuple(values))

    def check(self, program: Program, read: Sequence[Functionals], rows: int) -> None:
        """Raise ValueError where this is no posterior of the program with so many rows."""
        points = [leaf for each in read for leaf in jax.tree.leaves(each)]
        found = [np.ndim(leaf) == 2 and len(leaf) == rows and bool(np.all(np.isfinite(leaf))) for leaf in points]
        statements = len(program.observations)
        for part, known in zip(self.parts, self.values, strict=True):
            found += [part.elements.ndim == 3, part.columns.ndim == part.rows.ndim == 2]
            found += [part.kept is None or part.kept.ndim == 2]
            if not all(found):
                break
            sets, elements, seen = len(part.rows), part.elements.shape[1], part.rows.shape[1]
            shape = sets, part.columns.shape[1], elements, seen
            found += [np.shape(known.loadings) == shape, np.shape(known.z) == (sets, part.width)]
            found += [bool(np.all(np.isfinite(known.z))), bool(np.all(np.isfinite(known.loadings)))]
            found += [bool(np.all((part.elements >= 0) & (part.elements[..., :1] < statements)))]
            found += [part.elements.shape == (sets, elements, 2), len(part.columns) == sets]
            found += [
                *(_within(own, program.latents) for own in np.unique(part.columns, axis=0)),
                *(_within(np.unique(own), rows) for own in part.rows),
            ]
            if part.grid is not None:
                found += [
                    part.kept is None,
                    sets == 1,
                    part.grid.shape == (elements + 1,),
                    bool(np.all(part.grid >= 0)),
                ]
                found += [bool(np.all(part.grid[1:] < part.columns.shape[1]))]
            if part.kept is not None:
                found += [len(part.kept) == sets, *(_within(own[own >= 0], elements * seen) for own in part.kept)]
        if not all(found):
            raise ValueError("the data of an exact fit do not fit together")

    def at_inducing(
        self, program: Program, parameters: Mapping[str, Array], read: Sequence[Functionals], jitter: float
    ) -> list[Inducing]:
        """The same posterior over the whitened values of what the rows read, for a fit that starts from this one.

        With u = sqrt(scale) F w, F F' = K and A = H sqrt(scale) F, w has the precision I + A'A and the mean of A'z.
        """
        kernels, factors = [], []
        for group, at in zip(program.groups, read, strict=True):
            kernels.append(kernel_values(program.evaluator, group, parameters, every_point(at).shape[-1]))
            factors.append(factorise(group, kernels[-1], at, jitter))
        sizes = [group.size * f.shape[-1] for group, f in zip(program.groups, factors, strict=True)]
        precision, moment = jnp.zeros((sum(sizes), sum(sizes))), jnp.zeros(sum(sizes))
        for part, known in zip(self.parts, self.values, strict=True):
            loaded = loaded_by(part, jnp.asarray(known.loadings), program, kernels, factors)

            def add(total: tuple[Array, Array], own: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
                return (total[0] + own[0].T @ own[0], total[1] + own[0].T @ own[1]), None

            (precision, moment), _ = jax.lax.scan(add, (precision, moment), (loaded, jnp.asarray(known.z)))
        root = inverse_root(precision[None])[0]
        ends = np.cumsum(sizes)[:-1]
        pieces = zip(jnp.split(root @ (root.T @ moment), ends), jnp.split(root, ends), program.groups, strict=True)
        return [Inducing(m.reshape(1, g.size, -1), r.reshape(1, g.size, -1, r.shape[-1])) for m, r, g in pieces]


def _within(places: np.ndarray, size: int) -> bool:
    """Whether these are different whole numbers from 0 to below `size`, at least one."""
    whole = np.issubdtype(places.dtype, np.integer) and places.size > 0 and len(np.unique(places)) == places.size
    return bool(whole and places.min() >= 0 and places.max() < size)
