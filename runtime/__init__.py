"""Loopline on one machine: configuration, supervisor, embedded Redis, client and command line.

This layer joins `bus`, `agents` and `workers` into running processes. Workers never import it: they
receive what they need as plain values.
"""

__version__ = "0.1.0"

from loopline import require_full_name

require_full_name(__name__)
