"""`python -m tests.campaign --scale 1 --only texts --seed 0`: run the campaign and print its table.

Every kind is a module here with a `NAME` and `run(scale, seed)`, which returns counts: `tried`, and of these how many
ended in a raw exception (`raw`), took longer than their stated limit (`hung`), ran foreign code (`executed`), lost
something (`lost`) or gave a wrong answer (`wrong`). Anything but 0 is a mistake of gpdsl's, described on standard
error, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
import warnings

KINDS = ("texts", "data_files", "servers", "edited_fits", "interrupted_fits", "fitted_models")
FAILURES = ("raw", "hung", "executed", "lost", "wrong")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the campaign of docs/reliability.md")
    parser.add_argument("--only", choices=KINDS, action="append", help="these kinds alone")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("error")  # a warning that nobody asked for is an exception that nobody expects
    print(f"| kind | tried | {' | '.join(FAILURES)} | seconds |\n|---{'|--:' * (len(FAILURES) + 2)}|", flush=True)
    bad = 0
    for kind in arguments.only or KINDS:
        if importlib.util.find_spec(f"tests.campaign.{kind}") is None:
            continue
        module = importlib.import_module(f"tests.campaign.{kind}")
        start = time.monotonic()
        found = module.run(arguments.scale, arguments.seed)
        counts = [found.get(each, 0) for each in FAILURES]
        bad += sum(counts)
        row = (module.NAME, found["tried"], *counts, round(time.monotonic() - start))
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
