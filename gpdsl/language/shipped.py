"""Where the files that travel with the package are: the grammar and the model zoo."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal


def shipped(kind: Literal["grammar", "models"]) -> Traversable:
    """The folder `kind`: inside the installed package, or at the root of a checkout.

    Raises FileNotFoundError when neither holds it, which means a broken installation.
    """
    packaged = files("gpdsl").joinpath("_shipped", kind)
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / kind
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError(f"the folder `{kind}` is missing from the installation of gpdsl; install it again")
