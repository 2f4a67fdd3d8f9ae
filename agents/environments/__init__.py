"""Where tasks come from: generators with exact checkers.

`environment` says what an environment is, and `registry` finds one by its name or by
`package.module:OBJECT`; a package adds one by an entry point of the group `loopline.environments`.

`code` and `math_team` are not environments: what a program or an answer is worth only a judge
knows, who keeps hidden tests and gold answers. They are pure functions of the turns and of what a
judge said (`observe`, `done`, `verdict`, the rewards); the workflow `pair` plays them, on the bus
or, with a host that asks a judge, in one process (`loopline.agents.workflow_runner.run_locally`).
"""
