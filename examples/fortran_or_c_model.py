"""A forward model written in C: compiled here, called through ctypes, and no line of it is known to gpdsl.

Water levels are read off a gauge that answers nonlinearly: the C function solves an implicit equation by bisection. Any
library with C linkage is called in the same way, Fortran's `bind(c)` routines too: pointers to the rows' numbers go in.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gpdsl

SOURCE = """
#include <math.h>
/* reading r of a gauge at water level h: r + a r^3 = exp(h), by bisection, for n rows */
void gauge(int n, const double *h, const double *a, double *reading) {
    for (int i = 0; i < n; i++) {
        double low = 0.0, high = exp(h[i]);
        for (int step = 0; step < 60; step++) {
            double middle = 0.5 * (low + high);
            if (middle + a[i] * middle * middle * middle < exp(h[i])) low = middle; else high = middle;
        }
        reading[i] = 0.5 * (low + high);
    }
}
"""

MODEL = """
model gauge "Water level through an instrument that is a C library"
input  day      : real
input  friction : real
output reading  : real
param  noise    : positive = 0.1
external gauge(level: real, friction: real) -> real
latent level(day) ~ GP(0, RBF(2))
let r = gauge(level, friction)
reading ~ Normal(r, noise)
"""


def compiled(folder: Path) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The C function, as one of NumPy arrays [rows]."""
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("skipped: no C compiler `cc` on this machine")
    source, library = folder / "gauge.c", folder / "gauge.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    doubles = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
    function = ctypes.CDLL(str(library)).gauge
    function.argtypes, function.restype = [ctypes.c_int, doubles, doubles, doubles], None

    def gauge(level: np.ndarray, friction: np.ndarray) -> np.ndarray:
        reading = np.empty_like(level)
        function(len(level), np.ascontiguousarray(level), np.ascontiguousarray(friction), reading)
        return reading

    return gauge


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gauge = compiled(Path(folder))
        rng = np.random.default_rng(0)
        day = np.linspace(0, 20, 50)
        level, friction = np.sin(0.6 * day), rng.uniform(0.2, 1.0, day.size)
        data = {"day": day, "friction": friction}
        data["reading"] = gauge(level, friction) + 0.05 * rng.standard_normal(day.size)

        fit = gpdsl.compile(MODEL, externals={"gauge": gauge}).fit(data)
        print(fit.summary())
        found = fit.predict(data)
        error = np.sqrt(np.mean((found.mean("level") - level) ** 2))
        sd = np.sqrt(found.variance("level")).mean()
        print(f"\nlevel: root mean squared error {error:.3f}, posterior sd {sd:.3f} on average")
        print(f"noise: {float(fit.parameters['noise']):.3f}, simulated with 0.05")


if __name__ == "__main__":
    main()
