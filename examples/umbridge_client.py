"""A simulator behind HTTP: the conductivity of a rod from temperatures, with its solver on an UM-Bridge server.

`python umbridge_client.py http://host:4242` asks the model `temperature` of that server. Without an address it starts a
server of its own, by the package `umbridge`. Nobody differentiates the solver.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import numpy as np

import gpdsl

MODEL = """
model rod "Conductivity along a rod, from temperatures"
input  x : real                        # position, m
input  q : positive                    # heat put in at the sensor, W
output y : real                        # temperature above that of the ends, K
external temperature(conductivity: real, heat: real, x: real) -> real
latent level(x) ~ GP(0.5, 0.3 * RBF(0.25))
let conductivity = exp(level)          # W / (m K)
let warmth = temperature(conductivity, q, x)
y ~ Normal(warmth, 0.02)
"""


def solve(conductivity: float, heat: float, x: float) -> float:
    """Temperature where heat enters a rod of length 1 whose ends are kept cold, by finite differences."""
    places = np.arange(1, 50) / 50
    stiffness = conductivity * (2.0 * np.eye(49) - np.eye(49, k=1) - np.eye(49, k=-1))
    load = np.maximum(0.0, 1.0 - 50 * np.abs(places - x)) * heat / 50
    return float(np.interp(x, places, np.linalg.solve(stiffness, load)))


def serve(port: int) -> None:
    """The server: one model, as its authors would write it."""
    import umbridge

    class Temperature(umbridge.Model):  # type: ignore[misc]
        get_input_sizes = staticmethod(lambda config: [1, 1, 1])
        get_output_sizes = staticmethod(lambda config: [1])
        supports_evaluate = staticmethod(lambda: True)

        def __call__(self, parameters: list[list[float]], config: dict) -> list[list[float]]:
            return [[solve(*(vector[0] for vector in parameters))]]

    umbridge.serve_models([Temperature("temperature")], port)


def infer(url: str) -> None:
    """Fit through the server, and compare with the truth the data were made from."""
    rng, x = np.random.default_rng(3), np.linspace(0.1, 0.9, 25)
    truth, heat = np.exp(0.5 + 0.5 * np.sin(6 * x)), rng.uniform(4, 8, x.size)
    y = np.array([solve(*row) for row in zip(truth, heat, x, strict=True)]) + 0.02 * rng.standard_normal(x.size)
    fit = gpdsl.compile(MODEL, externals={"temperature": gpdsl.umbridge(url)}).fit({"x": x, "q": heat, "y": y})
    print(fit.summary())
    prediction = fit.predict({"x": x, "q": heat})
    mean, sd = prediction.mean("conductivity"), np.sqrt(prediction.variance("conductivity"))
    for row in range(0, x.size, 4):
        print(f"conductivity at {x[row]:.2f} m: {mean[row]:.3f} ± {sd[row]:.3f}, in truth {truth[row]:.3f}")
    print(f"within two standard deviations: {100 * np.mean(np.abs(mean - truth) < 2 * sd):.0f} %")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        return serve(int(sys.argv[2]))
    if len(sys.argv) > 1:
        return infer(sys.argv[1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, __file__, "--serve", str(port)], stdout=subprocess.DEVNULL) as server:
        try:
            while server.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            return infer(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
