"""The calls of the tool agent, which alone can calculate. Its calculations are its proposal."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.environments.tool_language import Answer, Argument, ToolFunction
from loopline.agents.environments.word_problem_team.instance import WordProblemInstance
from loopline.agents.environments.word_problem_team.rules import (
    Item,
    Items,
    Work,
    calculate_step,
    keep_calculations,
    with_dependencies,
)

Scratch = tuple[Work, Items]
_ABOUT = {
    "add": "x plus y",
    "sub": "x less y",
    "mul": "x times y",
    "div": "x divided by y",
}


def functions(instance: WordProblemInstance) -> Mapping[str, ToolFunction[Scratch]]:
    """Return the tool language for one instance."""

    def calculating(name: str) -> ToolFunction[Scratch]:
        def run(scratch: Scratch, arguments: tuple[Argument, ...]) -> Answer[Scratch]:
            work, items = scratch
            left, right = map(str, arguments)
            outcome = calculate_step(instance, work, name, left, right)
            if isinstance(outcome, str):
                return Answer(scratch, outcome, worked=False)
            new = (*(item.works[-1] for item in items), outcome)
            item = Item("keep", outcome.name, with_dependencies(outcome.name, new))
            return Answer(
                (keep_calculations(work, (outcome,)), (*items, item)),
                f"{outcome.name} = {outcome.result}",
            )

        return ToolFunction(name, (("x", "operand"), ("y", "operand")), _ABOUT[name], run)

    return {name: calculating(name) for name in _ABOUT}
