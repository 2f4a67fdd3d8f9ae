"""What an agent is: records, roles, workflows, prompts, tools. Pure code, no I/O of its own.

A run repeats this cycle (`loopline.agents.stepping.take_step` is one turn):

    hand-over ─▶ role ─▶ decision ─▶ workflow ─▶ next hand-overs, a join, or the end
                  │ ▲
                  ▼ │ completions and tool results, through `loopline.agents.protocols.Host`
                  host

Where to find things, and where to add them:

| extension | module with instructions | entry-point group |
|---|---|---|
| a tool that models may call | `loopline.agents.tools.declaration` | `loopline.tools` |
| a role: journal in, decision out | `loopline.agents.roles.protocol` | `loopline.roles` |
| a workflow: which role is next | `loopline.agents.workflows.routing` | `loopline.workflows` |
| an environment | `loopline.agents.environments.environment` | `loopline.environments` |
| a prompt | `loopline.agents.prompts` | (a file alongside its role) |
| a payload of a hand-over | `loopline.agents.payloads` | (imported with its role) |
| a check of a small model's answer | `loopline.agents.verification` | (an item of a ladder) |

`loopline.agents.workflow_runner` runs a workflow without a bus, `loopline.agents.replay` replays a
finished run from its journal, or forks it.
"""

from loopline import require_full_name

require_full_name(__name__)
