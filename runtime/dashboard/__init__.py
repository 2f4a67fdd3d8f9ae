"""The live page: what runs now, what it costs, what became of it."""

from loopline import require_full_name

require_full_name(__name__)
