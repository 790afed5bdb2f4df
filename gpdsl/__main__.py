"""`python -m gpdsl`: the same as the command `gpdsl`."""

from __future__ import annotations

import sys

from gpdsl.cli import main

sys.exit(main())
