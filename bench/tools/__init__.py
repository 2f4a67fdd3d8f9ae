"""`bench tools`: measures how well models use tools.

`worlds` runs whole workflows in the API simulator; `tool_steps` has single steps predicted from the
reference's own history (α-UMi's five metrics); `bfcl` and `apibench` ask for calls in one
completion. Each suite is a data set and a judge; running, resuming, payment and reports work as for
every benchmark.
"""

from __future__ import annotations

from loopline.agents.records import JsonObject

TEAM_OPTIONS: JsonObject = {"calculator": False, "constrained": True}
"""Options of workflows that use the tools of a simulated world."""
