"""How many generated instances of each kind the tests look at: PUZZLE_INSTANCES=10000 for all that
the project promises."""

from __future__ import annotations

import os

INSTANCES = int(os.environ.get("PUZZLE_INSTANCES", "200"))
"""Instances of each kind that a second solver verifies."""

TIMEOUT = 120 + INSTANCES // 2
"""Seconds for a test that looks at so many."""
