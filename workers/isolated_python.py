"""Options for starting our own Python processes.

When Python runs a module or a line of code, it also imports from the current folder. A user's
`platform.py` or `agents/` there would be imported instead of ours. The option -P prevents that
(Python 3.11).
"""

from __future__ import annotations

import sys

OWN_PYTHON = (sys.executable, "-P")
