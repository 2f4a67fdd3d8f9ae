"""How we start our own processes.

Python imports from the current folder, too, when it runs a module or a line. There a user's
`platform.py` or `agents/` would be ours. With -P it isn't (Python 3.11).
"""

from __future__ import annotations

import sys

OWN_PYTHON = (sys.executable, "-P")
