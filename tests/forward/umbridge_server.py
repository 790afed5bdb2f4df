"""An UM-Bridge server by the `umbridge` package, run as a process of its own: models that work, fail and hang.

python umbridge_server.py PORT WORKERS
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
import umbridge


class Times(umbridge.Model):  # type: ignore[misc]
    """Depths and speeds of two layers; times, with derivatives."""

    def __init__(self, name: str = "times", wait: float = 0.0) -> None:
        super().__init__(name)
        self.wait = wait

    def get_input_sizes(self, config: dict[str, Any]) -> list[int]:
        return [2, 2]

    def get_output_sizes(self, config: dict[str, Any]) -> list[int]:
        return [2]

    def __call__(self, parameters: list[list[float]], config: dict[str, Any]) -> list[list[float]]:
        depth, speed = map(np.asarray, parameters)
        time.sleep(self.wait)
        if depth[0] < -100:
            os.kill(os.getpid(), signal.SIGKILL)
        if depth[0] < -10:
            raise ValueError("a layer above the ground")
        if depth[0] < -5:
            return [[float("nan"), 1.0]]
        if depth[0] < -2:
            return [[1.0]]
        if depth[0] < 0:
            time.sleep(20)
        return [(config.get("factor", 2.0) * np.cumsum(depth / speed)).tolist()]

    def gradient(self, out_wrt: int, in_wrt: int, parameters: Any, sens: Any, config: Any) -> list[float]:
        depth, speed = map(np.asarray, parameters)
        of_layer = config.get("factor", 2.0) * np.cumsum(np.asarray(sens)[::-1])[::-1]
        return (of_layer / speed if in_wrt == 0 else -of_layer * depth / speed**2).tolist()

    def apply_jacobian(self, out_wrt: int, in_wrt: int, parameters: Any, vec: Any, config: Any) -> list[float]:
        depth, speed = map(np.asarray, parameters)
        change = vec / speed if in_wrt == 0 else -depth / speed**2 * vec
        return (config.get("factor", 2.0) * np.cumsum(change)).tolist()

    def supports_evaluate(self) -> bool:
        return True

    def supports_gradient(self) -> bool:
        return True

    def supports_apply_jacobian(self) -> bool:
        return True


if __name__ == "__main__":
    umbridge.serve_models([Times(), Times("slow", wait=0.06)], int(sys.argv[1]), max_workers=int(sys.argv[2]))
