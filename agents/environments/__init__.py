"""Environments: generators of tasks with exact checkers.

`environment` defines what an environment is, and `registry` finds one by name or by
`package.module:OBJECT`; a package adds one through an entry point of the group
`loopline.environments`.

`code` and `math_team` are not environments: only a judge, which has the hidden tests and gold
answers, can score a program or an answer. They are pure functions of the turns and of the judge's
facts (`observe`, `done`, `verdict`, the rewards). The workflow `pair` plays them, either on the bus
or in one process with a host that asks a judge (`loopline.agents.workflow_runner.run_locally`).
"""
