"""One machine's Loopline: configuration, supervisor, embedded Redis, client and command line.

This floor joins `bus`, `agents` and `workers` into running processes. Workers never import it:
what they need reaches them as plain values.
"""

__version__ = "0.1.0"

from loopline import require_full_name

require_full_name(__name__)
