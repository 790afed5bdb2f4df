"""`Model`: the checked declaration as users hold it, with `fit` and `explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.watch import loading, watching
from gpdsl.language import Source, check, parse
from gpdsl.language.calls import MADE, CallError, Named, answering, path_of, spoken
from gpdsl.language.model import Declarations
from gpdsl.language.takes import FitOptions, with_options
from gpdsl.language.used import PathLike, Reach, read_model
from gpdsl.language.vocabulary import shipped
from gpdsl.symbolic.checking import compile_checked

if TYPE_CHECKING:
    from gpdsl.inference.problem import Report as Progress
    from gpdsl.language.warnings import Report
    from gpdsl.program.standardise import Asked
    from gpdsl.results.fit import Fit
    from gpdsl.simulation.simulate import Simulation

Externals = Mapping[str, Any]


@spoken
class Model:
    """A checked model. `declarations` is what the file says; `externals` are opaque functions passed in from Python."""

    def __init__(self, declarations: Declarations, externals: Externals | None = None) -> None:
        if not isinstance(declarations, Declarations):
            raise CallError(f"Model: {MADE['Model'][0]}")
        self.declarations = declarations
        self.externals = dict(externals or {})

    @property
    def name(self) -> str:
        """The name on the `model` line."""
        return self.declarations.name

    @property
    def title(self) -> str:
        """The title on the `model` line, or nothing."""
        return self.declarations.title

    @with_options
    def fit(
        self,
        data: Any,
        *,
        columns: Mapping[str, str] | None = None,
        standardise: Asked = None,
        callback: Callable[[Progress], None] | None = None,
        progress: bool | None = None,
        start: Fit | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        **options: Unpack[FitOptions],
    ) -> Fit:
        """Fit the model: exactly where that can be had, else by variational inference, or by the `engine` you name.

        data: dict of arrays, rows first; a data frame; or the path of a CSV, Parquet or .npz file. columns: data column
        of each model name, where they differ. standardise: inputs and outputs to be fitted with mean 0 and standard
        deviation 1: True for all that can be, their names, or `{"x": (mean, sd)}`; the fit remembers the numbers, and
        what is predicted is in the units of the data. options: the other keywords; the table of docs/inference.md tells
        what they mean. callback: called between steps with a `Report`. progress: a bar with the time left; in terminals
        and notebooks a fit that takes longer than some seconds has one unless this is False. Ctrl-C returns the best
        state so far. start: another fit to begin with, of this model or one that shares latents with it: its parameters
        (`init` comes before them), its inducing points unless another number is asked for, and its posterior.

        checkpoint: a file for the fit, which also gets the best state so far every minute or so. resume: go on from
        that file, where there is one, after whatever has ended the fit; one that was finished is returned as it is.

        Raises GpdslError for unusable data, options or opaque functions.
        """
        with watching():
            with loading():
                from gpdsl.results.fitting import fit_model

            return fit_model(
                self, data, columns or {}, callback, progress, options, start, checkpoint, resume, standardise
            )

    @with_options
    def explain(
        self,
        data: Any,
        *,
        columns: Mapping[str, str] | None = None,
        standardise: Asked = None,
        **options: Unpack[FitOptions],
    ) -> str:
        """The plan for these data: how every term is computed and why, cost and memory. Options are those of `fit`."""
        with loading():
            from gpdsl.results.fitting import explain_model

        return explain_model(self, data, columns or {}, options, standardise)

    def sample_prior(
        self,
        data: Any = None,
        *,
        rows: int | None = None,
        seed: int = 0,
        parameters: Mapping[str, Any] | None = None,
        draw_parameters: bool = False,
        inputs: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Simulation:
        """One draw from the model's own prior: `fit(drawn.data)` takes it, `drawn.latents` and `.lets` are the truth.

        The inputs are those of `data` (anything `fit` takes; its outputs are not looked at) or of `inputs` by name; the
        others are drawn over a few length-scales of the latents. `rows` is 200 without either. `sizes` gives dimensions
        the model leaves open (2 otherwise). Parameters have the values of `parameters`, with `draw_parameters` draws
        from their priors, else their initial values. Same seed, same draw.

        Raises GpdslError for names the model does not have, for an external likelihood (it gives densities, no draws),
        and for more rows than a joint draw of a latent can take (5000).
        """
        with loading():
            from gpdsl.simulation.simulate import simulate

        return simulate(
            self,
            data,
            rows=rows,
            seed=seed,
            parameters=parameters,
            draw_parameters=draw_parameters,
            inputs=inputs,
            sizes=sizes,
            columns=columns,
        )

    def latex(self, *, standalone: bool = False) -> str:
        """The model as the equations a paper would print, in LaTeX for amsmath; a whole document when `standalone`."""
        from gpdsl.symbolic.latex import latex

        return latex(self.declarations, standalone=standalone)

    def graph(self, format: str = "svg") -> str:
        """The graphical model with plates: an SVG drawing, or with `format="dot"` a description for Graphviz.

        Observed quantities are shaded, latent processes have a thick border and deterministic quantities a double one;
        inputs and parameters are dots, constants squares, opaque functions boxes.
        """
        from gpdsl.symbolic.graph import FORMATS, graph

        if format not in FORMATS:
            raise GpdslError(f"format: expected {' or '.join(map(repr, FORMATS))}, not {format!r}")
        return graph(self.declarations, format)

    def info(self) -> dict[str, Any]:
        """Everything the model declares, as plain values: axes, types, distributions, and what it wants of its data."""
        from gpdsl.symbolic.information import information

        return Named(information(self.declarations))

    def warnings(
        self, data: Any = None, *, columns: Mapping[str, str] | None = None, standardise: Asked = None
    ) -> Report:
        """What can be fitted but is hardly meant: unused names, parameters that cannot be told apart, odd priors.

        With `data` (anything `fit` takes), length-scales that start far from the spread of their inputs too. Printed,
        the report reads like errors do; it is a sequence of values with a `code` and a `span`.
        """
        from gpdsl.symbolic.checking import all_warnings

        if data is None:
            return all_warnings(self.declarations)
        from gpdsl.program.standardise import spreads_in

        return all_warnings(self.declarations, spreads_in(self.declarations, data, columns, standardise))

    def __repr__(self) -> str:
        from gpdsl.data.errors import listed

        d = self.declarations
        return f"<gpdsl.Model {d.name}: {listed(d.inputs)} to {listed(d.outputs)} by {listed(d.latents)}>"

    def _repr_html_(self) -> str:
        """The text in colours, with its graph and its equations, for notebooks."""
        from gpdsl.language.highlight import html_of
        from gpdsl.symbolic.latex.document import web

        more = {"Graph": self.graph(), "Equations": web(self.declarations)}
        shown = (f"<details><summary>{title}</summary>{inside}</details>" for title, inside in more.items())
        return html_of(self.declarations.source.own) + "".join(shown)

    def _repr_latex_(self) -> str:
        """The equations, for notebooks."""
        from gpdsl.symbolic.latex import equations

        return equations(self.declarations)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, str]:
        from gpdsl.shown import mimebundle

        return mimebundle(self, include, exclude)

    def __reduce__(self) -> tuple[Any, ...]:
        """`pickle` and `copy` check the text again; opaque functions that are registered are looked up again."""
        from gpdsl.forward import unregistered

        return _again, (self.declarations.source, unregistered(self.externals))


def _again(source: Source, externals: Externals) -> Model:
    """A model from a text that holds the files it uses."""
    return Model(check(parse(source)), externals)


@answering
def compile(
    text: str,
    *,
    externals: Externals | None = None,
    name: str = "<model>",
    folder: PathLike | None = None,
    allow: PathLike | Sequence[PathLike] = (),
) -> Model:
    """A model from its text. Raises ModelError, listing every mistake with its position.

    externals: opaque functions by name, for this model alone. name: what messages call the text. folder: where the
    files lie that it uses (`use "kernels.gpm"`). allow: further folders they may lie in.
    """
    if not isinstance(text, str):
        raise GpdslError(
            f"compile takes the text of a model, not {quoted(type(text).__name__)}; gpdsl.load takes a path"
        )
    if text.endswith(".gpm") and "\n" not in text:
        raise GpdslError(f"compile takes the text of a model: `{quoted(text)}` names a file, which gpdsl.load reads")
    return Model(compile_checked(text, name, Reach.of(folder, allow)), externals)


@answering
def load(path: str | Path, *, externals: Externals | None = None, allow: PathLike | Sequence[PathLike] = ()) -> Model:
    """A model from a `.gpm` file. Raises ModelError for mistakes in it, GpdslError when it cannot be read.

    externals: opaque functions by name, for this model alone. allow: folders outside its own with files it uses.
    """
    if isinstance(path, str) and "\n" in path.strip():
        raise GpdslError("load takes the path of a file: gpdsl.compile takes the text of a model")
    path = path_of(path, "load")
    text = read_model(path)
    return Model(compile_checked(text, path.name, Reach.of(None, allow, model=path)), externals)


def zoo_names() -> list[str]:
    """Names of the models shipped with the package."""
    return sorted(p.name.removesuffix(".gpm") for p in shipped("models").iterdir() if p.name.endswith(".gpm"))


@answering
def zoo_text(name: str) -> str:
    """Source text of a shipped model. Raises GpdslError for an unknown name."""
    if name not in zoo_names():
        raise GpdslError(f"the zoo has no model `{name}`; it has {', '.join(zoo_names())}")
    return (shipped("models") / f"{name}.gpm").read_text(encoding="utf-8")


@answering
def zoo(name: str, *, externals: Externals | None = None) -> Model:
    """A model shipped with the package, as `compile` gives it. Raises GpdslError for an unknown name."""
    return compile(zoo_text(name), externals=externals, name=f"{name}.gpm")
