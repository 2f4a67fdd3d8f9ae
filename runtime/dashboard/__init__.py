"""The live page: current runs, their costs and their results."""

from loopline import require_full_name

require_full_name(__name__)
