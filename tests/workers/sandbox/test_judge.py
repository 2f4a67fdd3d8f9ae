"""The judge is right about honest programs, and a cheating program gains nothing."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loopline.agents.environments.code import (
    AssertionTest,
    CallTest,
    CodeProblem,
    CodeTest,
    ProgramTest,
)
from loopline.bench.datasets import humaneval, mbpp
from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.workers.sandbox import Limits, Sandbox, SandboxSettings
from loopline.workers.sandbox.judge import Judge, Verdict
from tests.workers.sandbox.cheats import CHEATS
from tests.workers.sandbox.conftest import needs_bubblewrap

# One sandbox serves all tests here: each program has its own interpreter anyway.
pytestmark = [needs_bubblewrap, pytest.mark.asyncio(loop_scope="module")]

DOUBLED = tuple(ProgramTest(stdin=f"{n}\n", stdout=f"{2 * n}\n") for n in (3, 1000))
CALLED = tuple(CallTest(function="f", arguments=(n,), expected=2 * n) for n in (3, 1000))
ASSERTED = tuple(AssertionTest(source=f"assert f({n}) == {2 * n}") for n in (3, 1000))
KINDS = {"program": DOUBLED, "call": CALLED, "assertion": ASSERTED}
HONEST = {
    "program": "print(2 * int(input()))",
    "call": "def f(n): return 2 * n",
    "assertion": "def f(n): return 2 * n",
}


def problem(*tests: CodeTest, setup: str = "", names: tuple[str, ...] = ("f",)) -> CodeProblem:
    """Return a problem with these tests."""
    return CodeProblem(id="t/1", statement="Double it.", tests=tests, setup=setup, names=names)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Judge]:
    limits = Limits(wall_seconds=20, cpu_seconds=5, memory_bytes=256 * 2**20)
    settings = SandboxSettings(limits=limits, parallel=2, ready=1)
    async with Sandbox(settings=settings) as sandbox:
        yield Judge(sandbox)


def whys(verdict: Verdict) -> list[str]:
    """Return the reason of each failed test."""
    return [outcome.why for outcome in verdict.outcomes]


@pytest.mark.parametrize("kind", ["call", "assertion"])
async def test_unencodable_characters_of_an_error_become_question_marks(
    judge: Judge, kind: str
) -> None:
    verdict = await judge.judge(
        problem(*KINDS[kind][:1]), "def f(n): raise ValueError(chr(0xd800))"
    )
    assert whys(verdict) == ["ValueError: ?"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_honest_program_passes(judge: Judge, kind: str) -> None:
    verdict = await judge.judge(problem(*KINDS[kind]), HONEST[kind])
    assert whys(verdict) == ["", ""]
    assert (verdict.solved, verdict.pass_rate) == (True, 1.0)


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("program", "n = int(input())\nprint(6 if n == 3 else n)"),
        ("call", "def f(n): return 6 if n == 3 else n"),
        ("assertion", "def f(n): return 6 if n == 3 else n"),
        ("program", "n = int(input())\nwhile n > 3: pass\nprint(6)"),
        ("call", "def f(n):\n    while n > 3: pass\n    return 6"),
        ("assertion", "import os\ndef f(n):\n    return 6 if n == 3 else os._exit(0)"),
    ],
)
async def test_each_test_counts_separately(judge: Judge, kind: str, program: str) -> None:
    """This is also true when a program hangs or exits in one of them."""
    tight = problem(*KINDS[kind]).model_copy(update={"wall_seconds": 1.0})
    verdict = await judge.judge(tight, program)
    assert [outcome.passed for outcome in verdict.outcomes] == [True, False]
    assert (verdict.solved, verdict.pass_rate) == (False, 0.5)
    backwards = tight.model_copy(update={"tests": tight.tests[::-1]})
    verdict = await judge.judge(backwards, program)
    assert [outcome.passed for outcome in verdict.outcomes] == [False, True]


@pytest.mark.parametrize("cheat", CHEATS)
async def test_cheating_gains_nothing(judge: Judge, cheat: str) -> None:
    """Output, exit codes, objects, patches and introspection do not help, in any kind of test."""
    program = CHEATS[cheat] + "\nif 'f' in globals(): print(f(0))"
    verdict = await judge.judge(problem(*(tests[0] for tests in KINDS.values())), program)
    assert verdict.pass_rate == 0, verdict


async def test_a_program_cannot_replace_the_judge_s_names(judge: Judge) -> None:
    """A program's own `set` and helper are not used for the comparison."""
    tests = (AssertionTest(source="assert set(f(1)) == set([1]) and half(f(2)) == 1"),)
    setup = "def half(values): return len(values) / 2"
    program = "class set(set):\n    def __eq__(self, _): return True\nhalf = lambda _: 1\n"
    verdict = await judge.judge(problem(*tests, setup=setup), program + "def f(n): return []")
    assert whys(verdict) == ["AssertionError: "]
    honest = program + "def f(n): return [1] * n"
    assert (await judge.judge(problem(*tests, setup=setup), honest)).solved


async def test_the_program_replaces_a_stub_of_the_setup(judge: Judge) -> None:
    """HumanEval's prompts define the function to complete."""
    code_problem = problem(*ASSERTED, setup="def f(n):\n    '''Twice.'''")
    assert (await judge.judge(code_problem, HONEST["assertion"])).solved


@pytest.mark.parametrize("leave", ["exit()", "quit()", "exit(0)", "import sys; sys.exit()"])
async def test_a_right_program_may_exit_early(judge: Judge, leave: str) -> None:
    """It may also use the builtins from `site`: contest programs exit that way."""
    program = f"n = int(input())\nif n == 3:\n    print(6)\n    {leave}\nprint(2 * n)"
    verdict = await judge.judge(problem(*DOUBLED), program)
    assert whys(verdict) == ["", ""]


async def test_a_right_program_may_read_and_write_long_numbers(judge: Judge) -> None:
    """The numbers are longer than Python's default limit of 4,300 digits."""
    test_input, wanted = "9" * 9_000, "1" + "9" * 8_999 + "8"
    verdict = await judge.judge(
        problem(ProgramTest(stdin=test_input, stdout=wanted)), HONEST["program"]
    )
    assert whys(verdict) == [""]


DEEP = """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**28)
def down(n): return 1 + down(n - 1) if n else 0
thread = threading.Thread(target=lambda: print(2 * int(input()) + down(20_000) - 20_000))
thread.start()
"""


@pytest.mark.parametrize(
    "size", ["(resource.RLIM_INFINITY, resource.RLIM_INFINITY)", "[2**28, resource.RLIM_INFINITY]"]
)
async def test_a_program_that_asks_for_a_larger_stack_goes_on(judge: Judge, size: str) -> None:
    program = f"""
import resource, sys
before = resource.getrlimit(resource.RLIMIT_STACK)
resource.setrlimit(resource.RLIMIT_STACK, {size})
assert resource.getrlimit(resource.RLIMIT_STACK) == before
sys.setrecursionlimit(10**6)
def down(n): return 1 + down(n - 1) if n else 0
print(2 * int(input()) + down(20_000) - 20_000)
"""
    assert whys(await judge.judge(problem(DOUBLED[0]), program)) == [""]


async def test_a_program_knows_its_file(judge: Judge) -> None:
    program = "import os\nassert os.path.basename(__file__) == 'program.py'\n"
    assert whys(await judge.judge(problem(DOUBLED[0]), program + HONEST["program"])) == [""]


async def test_a_problem_s_memory_limit_leaves_room_for_a_deep_stack() -> None:
    """The stack's room is reserved and hardly used, but stays below the sandbox's own limit."""
    limits = Limits(wall_seconds=60, cpu_seconds=10)
    settings = SandboxSettings(limits=limits, parallel=1, ready=1)
    code_problem = problem(DOUBLED[0]).model_copy(update={"memory_bytes": 256 * 10**6})
    async with Sandbox(settings=settings) as sandbox:
        judge = Judge(sandbox)
        assert whys(await judge.judge(code_problem, DEEP)) == [""]
        little = code_problem.model_copy(update={"memory_bytes": 10**6})
        for candidate, size in ((little, 320), (code_problem, 512)):
            verdict = await judge.judge(candidate, f"hold = bytearray({size} * 2**20)")
            assert whys(verdict) == ["out_of_memory: MemoryError"]


FORGED = """
import os, time
for pipe in range(3, 12):
    try: os.write(pipe, b'{"value": null}\\n')
    except OSError: pass
time.sleep(1000)
"""


@pytest.mark.parametrize("kind", ["call", "assertion"])
async def test_a_program_that_ignores_its_input_gets_no_extra_time(judge: Judge, kind: str) -> None:
    """It reports that it has started, and leaves the judge with a full pipe."""
    many = 6
    long = list(range(60_000))
    tests: dict[str, CodeTest] = {
        "call": CallTest.model_validate({"function": "f", "arguments": (long,), "expected": 1}),
        "assertion": AssertionTest(source="assert f(list(range(60_000))) == 1"),
    }
    code_problem = problem(*(tests[kind],) * many).model_copy(update={"wall_seconds": 0.3})
    before = time.monotonic()
    verdict = await judge.judge(code_problem, FORGED)
    took = time.monotonic() - before
    assert whys(verdict) == ["timed_out"] * many
    # About 0.9 seconds each; earlier each test took the time of all remaining ones: 27 seconds.
    assert took < 3 * many, took


async def test_plain_data_is_returned_unchanged(judge: Judge) -> None:
    """This covers every kind, nested values, and values that JSON lacks."""
    values = [
        "(1, [2.5, None], {'a': {3}}, frozenset({4}))", "10**400", "float('inf')", "-0.0", "1j",
        "b'\\xff'", "'ä\\n\\ud800'", "{(1, 2): True}", "str", "[[]]",
        "__import__('fractions').Fraction(1, 3)", "__import__('decimal').Decimal('0.10')",
    ]  # fmt: skip
    tests = [AssertionTest(source=f"v = {value}\nassert f(v) == v and type(f(v)) is type(v)")
             for value in values]  # fmt: skip
    verdict = await judge.judge(problem(*tests), "def f(v): return v")
    assert whys(verdict) == [""] * len(values)


async def test_tests_can_use_a_program_s_objects_without_trusting_them(judge: Judge) -> None:
    """Trees that a test builds, matches and generators, as MBPP's tests need them."""
    setup = "root = Node(1)\nroot.left = Node(2)\nroot.left.left = Node(3)"
    tests = [
        "assert depth(root) == 3", "assert root.left.value == 2",
        "assert list(count(3)) == [0, 1, 2]",
        "assert found('a1')", "assert not found('a')", "assert root != Node(1)",
        "assert sorted([Node(2), Node(1)])", "assert depth(lambda: 0)", "assert {root}",
    ]  # fmt: skip
    program = """
import re
class Node:
    def __init__(self, value):
        self.value, self.left = value, None
    def __eq__(self, other): return True
    def __lt__(self, other): return True
def depth(node): return depth(node.left) + 1 if node else 0
def count(n): yield from range(n)
def found(text): return re.search(r"\\d", text)
"""
    code_problem = problem(
        *(AssertionTest(source=test) for test in tests),
        setup=setup, names=("Node", "depth", "count", "found"),
    )  # fmt: skip
    verdict = await judge.judge(code_problem, program)
    assert [outcome.passed for outcome in verdict.outcomes] == [True] * 6 + [False] * 3


async def test_a_method_of_a_solution_class_is_called(judge: Judge) -> None:
    """LeetCode's problems have this form, with their implicit imports."""
    code_problem = problem(*CALLED).model_copy(update={"preamble": "from typing import *"})
    program = "class Solution:\n    def f(self, n: Optional[int]): return 2 * n"
    assert (await judge.judge(code_problem, program)).solved


async def test_a_method_takes_precedence_over_the_preamble_s_function(judge: Judge) -> None:
    """The published judges do the same; a program's own function is not a method."""
    preamble = "from heapq import *\ndef f(n): return 0"
    code_problem = problem(*CALLED).model_copy(update={"preamble": preamble})
    method = "class Solution:\n    def f(self, n): return 2 * n"
    function = f"class Solution: pass\n{HONEST['call']}"
    set_later = "class Solution:\n    def __init__(self): self.f = lambda n: 2 * n"
    for program in (method, function):
        assert (await judge.judge(code_problem, program)).solved
    assert (await judge.judge(problem(*CALLED), set_later)).solved


FUTURES = [
    "from __future__ import annotations",
    "from __future__ import (\n    annotations,\n)",
    "from __future__ import annotations; import os",
    "'about it'\nfrom __future__ import annotations",
    'r"""About it:\nf."""\n\n# so\nfrom __future__ import annotations as notes  # why',
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_program_may_start_with_future_imports(judge: Judge, kind: str) -> None:
    """This works after any preamble and in any notation."""
    code_problem = problem(*KINDS[kind][:1]).model_copy(update={"preamble": "import math\ntwo = 2"})
    for future in FUTURES:
        program = f"{future}\ndef g(n: Unknown): return math.gcd(two)\n{HONEST[kind]}"
        assert whys(await judge.judge(code_problem, program)) == [""], future


async def test_line_numbers_of_a_program_exclude_its_preamble(judge: Judge) -> None:
    code_problem = problem(DOUBLED[0]).model_copy(update={"preamble": "import math\n" * 9})
    program = "import traceback\ntry: 1 / 0\nexcept ArithmeticError: traceback.print_exc()"
    verdict = await judge.judge(code_problem, f"import sys\nsys.stderr = sys.stdout\n{program}")
    assert 'File "program.py", line 4' in verdict.outcomes[0].actual


@pytest.mark.parametrize("end", ["StopIteration", "StopAsyncIteration"])
async def test_an_exception_of_a_program_does_not_end_a_test_s_own_loop(
    judge: Judge, end: str
) -> None:
    """Around a function, `map` and `filter` would mistake it for the end of their input."""
    tests = [
        "assert all(map(lambda n: f(n) == 2 * n, [1, 2]))",
        "assert not list(filter(lambda n: f(n) != 2 * n, [1, 2]))",
        "assert list(f.n) == []",
    ]
    code_problem = problem(*(AssertionTest(source=test) for test in tests))
    program = f"class Never:\n    def __iter__(self): raise {end}\ndef f(n): raise {end}\n"
    verdict = await judge.judge(code_problem, f"{program}f.n = Never()")
    assert whys(verdict)[:2] == ["RuntimeError: "] * 2
    assert not verdict.outcomes[2].passed


async def test_a_function_is_imported_without_running_its_main_block(judge: Judge) -> None:
    """The judges of HumanEval, APPS and LiveCodeBench do the same: many programs test
    themselves."""
    for guarded in (
        "print(f(int(input())))",
        "import unittest; unittest.main()",
        "raise SystemExit",
    ):
        program = f"{HONEST['call']}\nif __name__ == '__main__':\n    {guarded}"
        assert (await judge.judge(problem(*CALLED), program)).solved
    whole = "if __name__ == '__main__':\n    print(2 * int(input()))"
    assert (await judge.judge(problem(*DOUBLED), whole)).solved


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("def f(", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("def g(n): pass", "KeyError"),
        ("raise MemoryError", "out_of_memory"), ("while True: pass", "timed_out"),
        ("import os; os.abort()", "killed"), ("f = print", "wrong answer"),
        ("def f(n): return object()", "wrong answer|not plain data"),
        ("#" * 5_000_000, "more than"),
        ("def f(n): return {i * (2**61 - 1) for i in range(10_000)}", "far too long"),
        ("def f(n):\n    v = []\n    for _ in range(400): v = [v]\n    return v", "wrong answer"),
    ],
)  # fmt: skip
async def test_an_outcome_states_its_reason(judge: Judge, program: str, why: str) -> None:
    # Only the hanging one needs a short limit: another may be slow on a busy machine.
    seconds = 1.0 if why == "timed_out" else 30.0
    code_problem = problem(*CALLED).model_copy(update={"wall_seconds": seconds})
    verdict = await judge.judge(code_problem, program)
    assert all(re.search(why, outcome.why) for outcome in verdict.outcomes), verdict
    assert not verdict.solved


async def test_a_program_s_output_is_shown(judge: Judge) -> None:
    """An agent learns from it what its program did."""
    verdict = await judge.judge(problem(DOUBLED[0]), "print(int(input()) + 1)")
    assert [(outcome.actual, outcome.why) for outcome in verdict.outcomes] == [
        ("4\n", "wrong answer")
    ]
    verdict = await judge.judge(problem(CALLED[0]), "def f(n): return (n, 'x')")
    assert [(outcome.actual, outcome.why) for outcome in verdict.outcomes] == [
        ("(3, 'x')", "wrong answer")
    ]
    verdict = await judge.judge(problem(DOUBLED[0]), "print(6)\n1 / 0")
    assert verdict.outcomes[0].why == "error: ZeroDivisionError: division by zero"


async def test_tests_of_all_kinds_keep_their_order(judge: Judge) -> None:
    program = "def f(n): return 2 * n\nimport sys\nfor line in sys.stdin: print(f(int(line)))"
    code_problem = problem(ASSERTED[0], DOUBLED[0], CALLED[0], ProgramTest(stdin="1", stdout="3"))
    verdict = await judge.judge(code_problem, program)
    assert [outcome.passed for outcome in verdict.outcomes] == [True, True, True, False]


async def test_a_problem_without_tests_is_not_solved(judge: Judge) -> None:
    verdict = await judge.check(problem(*CALLED), HONEST["call"], [])
    assert (verdict.solved, verdict.pass_rate) == (False, 0.0)


async def test_parallel_judges_do_not_wait_for_each_other() -> None:
    """Each assertion needs two interpreters, while only one program runs at a time."""
    settings = SandboxSettings(parallel=1, ready=1)
    async with Sandbox(settings=settings) as sandbox:
        judge = Judge(sandbox)
        code_problem = problem(*ASSERTED)
        verdicts = await asyncio.gather(
            *(judge.judge(code_problem, HONEST["assertion"]) for _ in range(3))
        )
    assert all(verdict.solved for verdict in verdicts)


@pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not point to the published data"
)
async def test_published_solutions_pass_their_own_tests(judge: Judge) -> None:
    """A few tasks need special support: a helper of the prompt (32), trees (367), a type as an
    argument (533), an import of the solution's (596)."""
    wanted = {"humaneval/32", "mbpp/367", "mbpp/533", "mbpp/596"}
    records = [*humaneval.load().records, *mbpp.load("full").records]
    problems = [record for record in records if record.id in wanted]
    assert len(problems) == len(wanted)
    verdicts = [await judge.judge(record, record.solutions[0]) for record in problems]
    assert all(verdict.solved for verdict in verdicts)
