"""What an agent is: records, roles, workflows, prompts, tools. Pure code, no I/O of its own.

A run goes round like this (`agents.stepping.take_step` is one turn of it):

    hand-over ─▶ role ─▶ decision ─▶ workflow ─▶ next hand-overs, a join, or the end
                  │ ▲
                  ▼ │ completions and tool results, through `agents.protocols.Host`
                  host

Where to look, and where to add:

| what | module that says how | entry-point group |
|---|---|---|
| a tool that models may call | `agents.tools.declaration` | `switchyard.tools` |
| a role: journal in, decision out | `agents.roles.protocol` | `switchyard.roles` |
| a workflow: who is next | `agents.workflows.routing` | `switchyard.workflows` |
| a prompt | `agents.prompts` | (a file beside its role) |
| a payload of a hand-over | `agents.payloads` | (imported with its role) |
| a check of a small model's answer | `agents.verification` | (an item of a ladder) |

`agents.local` runs a workflow without a bus, `agents.replay` takes a finished run again from its
journal, or forks it.
"""
