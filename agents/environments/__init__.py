"""Environments: generators of tasks with exact checkers.

`environment` says what an environment is, and `registry` finds one by its name or by
`package.module:OBJECT`; a package adds one by an entry point of the group `loopline.environments`.

`code` and `math_team` are not environments: only a judge, who keeps hidden tests and gold answers,
knows what a program or an answer is worth. They are pure functions of the turns and of the judge's
facts (`observe`, `done`, `verdict`, the rewards); the workflow `pair` plays them, on the bus or,
with a host that asks a judge, in one process (`loopline.agents.workflow_runner.run_locally`).
"""
