"""A turn of coder and unit tester, run."""

from __future__ import annotations

import pytest

from agents.environments.code import CodeProblem, ProgramTest
from agents.environments.code.team import Facts, done, solved
from tests.workers.sandbox.conftest import needs_bubblewrap
from workers.sandbox import Limits, Sandbox, SandboxSettings
from workers.sandbox.code_team import CodeTeamJudge
from workers.sandbox.judge import Judge

pytestmark = needs_bubblewrap

GOOD = "print(2 * int(input()))"
HALF = "n = int(input())\nprint(2 * n if n < 5 else n)"
PROBLEM = CodeProblem(
    id="t/1", statement="Double.", solutions=("return 1", GOOD),
    tests=(ProgramTest(stdin="3", stdout="6"), ProgramTest(stdin="7", stdout="14")),
)  # fmt: skip
RIGHT, WRONG = ProgramTest(stdin="10", stdout="20"), ProgramTest(stdin="10", stdout="10")


@pytest.mark.parametrize(
    ("code", "test", "expected"),
    [
        (GOOD, RIGHT, Facts(golden_pass_rate=1, golden_passes_test=True, agree=True,
                            actual="20\n")),
        (HALF, RIGHT, Facts(golden_pass_rate=0.5, golden_passes_test=True, agree=False,
                            actual="10\n", why="wrong answer")),
        (HALF, WRONG, Facts(golden_pass_rate=0.5, golden_passes_test=False, agree=True,
                            actual="10\n")),
        ("", RIGHT, Facts(golden_pass_rate=0, golden_passes_test=True, agree=False)),
        (GOOD, None, Facts(golden_pass_rate=1, golden_passes_test=False, agree=False)),
    ],
)  # fmt: skip
async def test_the_facts_of_a_turn_are_what_running_it_shows(
    settings: SandboxSettings, code: str, test: ProgramTest | None, expected: Facts
) -> None:
    """Golden programs that are none themselves are passed over."""
    async with Sandbox(Limits(wall_seconds=20), settings=settings) as sandbox:
        turn = await CodeTeamJudge(Judge(sandbox)).turn(PROBLEM, code, test)
    assert turn.facts == expected
    assert (turn.code, turn.test) == (code, test)
    assert done([turn]) is expected.agree
    assert solved([turn]) is (code == GOOD)


async def test_without_a_golden_program_nobody_knows_whether_a_test_is_right(
    settings: SandboxSettings,
) -> None:
    async with Sandbox(settings=settings) as sandbox:
        asked = PROBLEM.model_copy(update={"solutions": ()})
        turn = await CodeTeamJudge(Judge(sandbox)).turn(asked, GOOD, RIGHT)
    assert turn.facts.golden_passes_test is None
