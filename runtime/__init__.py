"""One machine's Switchyard: configuration, supervisor, embedded Redis, client and command line.

This floor joins `bus`, `agents` and `workers` into running processes. Workers never import it:
what they need reaches them as plain values.
"""

__version__ = "0.1.0"
