"""What the first fit must hold, measured: `python benchmarks/first_fit.py NAME ...`, or `all`.

Reads the data from the folder in GPDSL_DATA, or from ../shared/data beside the repository; what is absent is skipped.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the package of this checkout

SUITES = {
    "boston": "dense regression against the exact GP in NumPy",
    "coal_mining": "log Gaussian Cox process against NUTS",
    "wisconsin": "binary classification",
    "usps": "three digits, inducing points for a tenth of the rows",
    "estimators": "variance of the gradients of every estimator on the likelihoods of the papers",
    "seismic": "posteriors against NUTS, every estimator against one common evaluation of the bound",
    "opaque_seismic": "an opaque forward model: accuracy against evaluations, beside elliptical slice sampling",
    "checking": "seconds of `gpdsl check`, of the zoo and of models of 250 to 4000 lines",
    "formula_kernels": "kernels by formula against the built-in kernels",
    "compiling": "seconds of compilation of every model of the zoo",
    "exact": "exact GPs beside GPyTorch, scikit-learn, GPflow and NumPy: evidence and gradient, whole fits",
    "dense_binary": "binary classes with a dense posterior beside GPflow and scikit-learn: seconds of a fit",
    "scikit_learn": "scikit-learn side by side: seconds of fits, RMSE and log loss",
    "cross_validation": "cross_val_score of the default estimators beside scikit-learn: accuracy and seconds",
    "coverage": "coverage of intervals over simulated data sets of models of the zoo, plugged in and integrated",
    "joint_draws": "joint draws by every engine: their covariance beside that of the exact process",
    "threads": "threads of the linear algebra library: a factor and an inverse on one and on all, idle and busy",
    "svgp": "minibatches beside GPflow, GPyTorch and GPJax: seconds per step, time to quality",
    "backends": "opaque functions in threads, processes, Dask and UM-Bridge: overhead, throughput of two workers",
    "diagnosis": "what the diagnosis of a summary finds in fits that are sick on purpose, and in healthy ones",
    "diagnosis_cost": "processor seconds of a fit and of its default diagnosis, first and again",
    "full_bayes": "parameters integrated over beside NUTS over parameters and latents",
    "posteriordb": "parameters integrated over, and chains, beside reference draws of posteriordb and NUTS",
    "predictions": "seconds of predictions of 1000 rows: the first, the next, intervals",
    "startup": "seconds from the command line to the first optimisation step",
}


def main() -> None:
    """Run the suites that were named, each of which prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listing = ", ".join(f"{name} ({what})" for name, what in SUITES.items())
    parser.add_argument("names", nargs="+", choices=[*SUITES, "all"], metavar="NAME", help=f"{listing}, or all")
    names = parser.parse_args().names
    for name in SUITES if "all" in names else names:
        importlib.import_module(f"suites.{name}").run()


if __name__ == "__main__":
    main()
