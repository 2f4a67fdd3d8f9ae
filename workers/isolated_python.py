"""How we start our own processes.

Python takes the current folder for a place to import from when it is told to run a module or a
line. There a user's `platform.py` or `agents/` would be ours. With -P it isn't (Python 3.11).
"""

from __future__ import annotations

import sys

OWN_PYTHON = (sys.executable, "-P")
