"""Judges programs by tests. A program is queried, but its claims are never trusted.

* A whole program only gets a test's input; its output is compared here.
* A function is called in the program's own process: arguments go in, plain data comes back and is
  compared here.
* Assertions run in a second sandbox, without the program: see `inside/assertions.py`. They are the
  data set's own code; model-written tests must use the other two kinds.

So nothing that a program prints, patches, reads or exits with reveals or decides its tests: the
expected outputs are in this process, or otherwise out of its reach.
"""

from __future__ import annotations

import asyncio
import json
import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loopline.agents.environments.code import (
    AssertionTest,
    CallTest,
    CodeProblem,
    CodeTest,
    ProgramTest,
    assemble_program,
    outputs_agree,
    values_agree,
)
from loopline.agents.tools.answers import replace_surrogates
from loopline.workers.sandbox.inside.plain_values import decode, encode
from loopline.workers.sandbox.limits import MIB, WAITING, Limits
from loopline.workers.sandbox.pool import Sandbox
from loopline.workers.sandbox.process import SandboxProcess
from loopline.workers.sandbox.result import Ending

T = TypeVar("T")

MAX_SHOWN = 2_000
"""Longest part of a program's output that an outcome shows, in characters."""
MAX_PROGRAM_CHARS = 2**20
"""Longest program; a longer one fails. The longest golden one has 20 kB."""
OF_THE_TEST = "the test: "
"""Prefix of an outcome's reason if the test itself ended that way, not the program."""
_MAX_SECONDS = 3600
_LEAST_MEMORY = 64 * MIB
"""An interpreter needs this much, even if a problem written for C++ allows less."""
_RESERVED = 256 * MIB
"""Address space in addition to a problem's own memory limit. The problem's limit means memory in
use, while the sandbox's means address space. Many recursive programs reserve a stack of this size
for a thread, and would fail even if they used little of it. So a program may use more than its
problem allows, but never more than the sandbox does."""
_GRACE_SECONDS = 1.0
"""Longest time from the end of a process's output to its exit."""


@dataclass(frozen=True)
class Outcome:
    """Result of one test."""

    passed: bool
    actual: str
    """The program's output or return value, truncated; empty for assertions, which have none."""
    why: str
    """Empty if it passed; otherwise `wrong answer`, how the program ended, or its exception."""

    @property
    def timed_out(self) -> bool:
        """Whether the program did not answer in time."""
        return self.why.removeprefix(OF_THE_TEST).startswith(Ending.TIMED_OUT)


_UNTRIED = Outcome(False, "", Ending.TIMED_OUT)
"""Outcome of a test after too many others that timed out."""


@dataclass(frozen=True)
class Verdict:
    """Results of all tests, in order."""

    outcomes: tuple[Outcome, ...]

    @property
    def pass_rate(self) -> float:
        """Share of passed tests, 0–1; 0 without tests."""
        return sum(outcome.passed for outcome in self.outcomes) / max(1, len(self.outcomes))

    @property
    def solved(self) -> bool:
        """Whether there were tests and all passed."""
        return bool(self.outcomes) and all(outcome.passed for outcome in self.outcomes)


@dataclass
class _Outcomes:
    """Results of a program's tests so far, by position."""

    patience: int
    by_place: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    _hung: list[int] = field(default_factory=list[int])

    def add(self, outcomes: dict[int, Outcome]) -> None:
        self.by_place |= outcomes
        for at, outcome in outcomes.items():
            if outcome.timed_out:
                insort(self._hung, at)

    def too_many_timeouts(self, place: int) -> bool:
        """Whether too many earlier tests timed out."""
        return bisect_left(self._hung, place) >= self.patience

    def left(self, tests: dict[int, T]) -> dict[int, T]:
        """Tests that have not been tried and should be."""
        return {
            at: test
            for at, test in tests.items()
            if at not in self.by_place and not self.too_many_timeouts(at)
        }


class Judge:
    """Judges programs in a sandbox that its owner opens and closes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def judge(self, problem: CodeProblem, code: str) -> Verdict:
        """Judge a model's code by the golden tests. Raises SandboxUnavailable."""
        return await self.check(problem, code, problem.tests)

    async def check(
        self,
        problem: CodeProblem,
        code: str,
        tests: Sequence[CodeTest],
        *,
        patience: int | None = None,
    ) -> Verdict:
        """Judge a model's code by other tests, for example generated ones. Tests after `patience`
        others that timed out are treated as timed out, and most of them are not tried: otherwise a
        hanging program would delay its judge for minutes."""
        program = assemble_program(problem, code)
        if len(program) > MAX_PROGRAM_CHARS:
            long = Outcome(False, "", f"the program has more than {MAX_PROGRAM_CHARS:,} characters")
            return Verdict((long,) * len(tests))
        limits = self._limits(problem)
        outcomes = _Outcomes(len(tests) if patience is None else patience)
        runs = {at: test for at, test in enumerate(tests) if isinstance(test, ProgramTest)}
        turns = asyncio.Semaphore(self._sandbox.parallel)

        async def run(at: int, test: ProgramTest) -> None:
            async with turns:
                if not outcomes.too_many_timeouts(at):
                    outcomes.add({at: await self._run(problem, program, test, limits)})

        await asyncio.gather(*(run(at, test) for at, test in runs.items()))
        calls = {at: test for at, test in enumerate(tests) if isinstance(test, CallTest)}
        while waiting := outcomes.left(calls):
            outcomes.add(await self._call(problem, program, waiting, limits))
        asserts = {at: test for at, test in enumerate(tests) if isinstance(test, AssertionTest)}
        while waiting := outcomes.left(asserts):
            outcomes.add(await self._assert(problem, program, waiting, limits))
        # By position, not by completion time, so that the verdict is deterministic.
        return Verdict(
            tuple(
                _UNTRIED if outcomes.too_many_timeouts(at) else outcomes.by_place[at]
                for at in range(len(tests))
            )
        )

    def _limits(self, problem: CodeProblem) -> Limits:
        """Limits of one test: the sandbox's, or lower ones of the problem."""
        general = self._sandbox.limits
        wall, cpu = general.wall_seconds, general.cpu_seconds
        if problem.wall_seconds is not None:
            allowed = problem.wall_seconds * self._sandbox.time_factor
            wall, cpu = min(wall, allowed * WAITING), min(cpu, math.ceil(allowed))
        memory = general.memory_bytes
        if problem.memory_bytes is not None:
            memory = min(memory, max(_LEAST_MEMORY, problem.memory_bytes) + _RESERVED)
        return general.model_copy(
            update={
                "wall_seconds": wall,
                "cpu_seconds": cpu,
                "memory_bytes": memory,
            }
        )

    async def _run(
        self, problem: CodeProblem, program: str, test: ProgramTest, limits: Limits
    ) -> Outcome:
        result = await self._sandbox.run(
            program, preamble=problem.preamble, stdin=test.stdin, limits=limits
        )
        output = result.stdout[:MAX_SHOWN]
        if result.ending is not Ending.OK:
            last = result.stderr.strip().rpartition("\n")[2][:300]
            return Outcome(False, output, f"{result.ending}: {last}" if last else result.ending)
        passed = outputs_agree(result.stdout, test.stdout)
        return Outcome(passed, output, "" if passed else "wrong answer")

    async def _call(
        self, problem: CodeProblem, program: str, tests: dict[int, CallTest], limits: Limits
    ) -> dict[int, Outcome]:
        """Outcomes of the calls that one process completed: at least one."""
        outcomes: dict[int, Outcome] = {}
        job = {"kind": "candidate", "source": program, "preamble": problem.preamble}
        async with self._sandbox.process(job, _limits_for_tests(limits, len(tests))) as process:
            trouble = await _wait_until_started(process, limits)
            if trouble:
                return dict.fromkeys(tests, Outcome(False, "", trouble))
            loop = asyncio.get_running_loop()
            for at, test in tests.items():
                # One limit for question and answer: a program need not read the question.
                until = loop.time() + limits.wall_seconds
                await process.write_line(_request(test), until - loop.time())
                line = await process.read_line(until - loop.time())
                if line is None:
                    outcomes[at] = Outcome(False, "", await _ending(process))
                    break
                outcomes[at] = _call_outcome(line, test)
        return outcomes

    async def _assert(
        self,
        problem: CodeProblem,
        program: str,
        tests: dict[int, AssertionTest],
        limits: Limits,
    ) -> dict[int, Outcome]:
        """Outcomes of the assertions that one pair of processes completed: at least one."""
        program_job = {"kind": "candidate", "source": program, "preamble": problem.preamble}
        test_job = {
            "kind": "assertions",
            "setup": problem.setup,
            "names": list(problem.names),
            "tests": [[at, test.source] for at, test in tests.items()],
        }
        bounds = _limits_for_tests(limits, len(tests))
        async with self._sandbox.process(program_job, bounds) as candidate:
            trouble = await _wait_until_started(candidate, limits)
            if trouble:
                return dict.fromkeys(tests, Outcome(False, "", trouble))
            # At any time, one of the two processes waits for the other.
            async with self._sandbox.process(test_job, bounds, second=True) as assertions:
                return await _relay(candidate, assertions, list(tests), limits)


async def _relay(
    candidate: SandboxProcess, assertions: SandboxProcess, order: list[int], limits: Limits
) -> dict[int, Outcome]:
    """Relay questions and answers until every test has an outcome or a process has ended."""
    loop = asyncio.get_running_loop()
    outcomes: dict[int, Outcome] = {}
    for at in order:
        until = loop.time() + limits.wall_seconds
        while at not in outcomes:
            line = await assertions.read_line(until - loop.time())
            if line is None:
                outcomes[at] = Outcome(False, "", f"{OF_THE_TEST}{await _ending(assertions)}")
                return outcomes
            message: dict[str, Any] = json.loads(line)
            if "ask" not in message:
                outcomes[at] = Outcome(
                    message["passed"], "", replace_surrogates(message["why"] or "")
                )
                continue
            await candidate.write_line(json.dumps(message["ask"]).encode(), until - loop.time())
            reply = await candidate.read_line(until - loop.time())
            if reply is None:
                outcomes[at] = Outcome(False, "", await _ending(candidate))
                return outcomes
            await assertions.write_line(reply, until - loop.time())
    return outcomes


async def _wait_until_started(process: SandboxProcess, limits: Limits) -> str:
    """Wait for a candidate's first line; returns the error, or an empty text."""
    line = await process.read_line(limits.wall_seconds)
    if line is None:
        return await _ending(process)
    reply = _reply(line)
    return "" if "value" in reply else _exception_text(reply)


async def _ending(process: SandboxProcess) -> str:
    """How a process ended that no longer answers. One that only closed its output, which is visible
    if it runs without bubblewrap, is killed, so that it does not delay its judge."""
    result = await process.finish(seconds=_GRACE_SECONDS)
    return "it ended without an answer" if result.ending is Ending.OK else str(result.ending)


def _call_outcome(line: bytes, test: CallTest) -> Outcome:
    if len(line) > _max_reply_bytes(test):
        return Outcome(False, "", "wrong answer: far too long")
    reply = _reply(line)
    if "value" not in reply:
        return Outcome(False, "", _exception_text(reply))
    try:
        value = decode(reply["value"])
        value_text = repr(value)[:MAX_SHOWN]
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return Outcome(False, "", "the function returned what is not plain data")
    passed = any(values_agree(value, right) for right in (test.expected, *test.also_right))
    return Outcome(passed, value_text, "" if passed else "wrong answer")


def _reply(line: bytes) -> dict[str, Any]:
    """A program's reply; its content is arbitrary."""
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}


def _exception_text(reply: dict[str, Any]) -> str:
    """The exception that a program reports. Only texts are used, since other values may not be
    printable."""
    parts = (reply.get("raised"), reply.get("message"))
    message = ": ".join(part for part in parts if isinstance(part, str))[:MAX_SHOWN]
    return replace_surrogates(message) or "no answer"


def _max_reply_bytes(test: CallTest) -> int:
    """Length of the longest reply that can be correct: `encode` turns `[]` into at most
    `{"tuple": []}`. The limit keeps a program from occupying its judge, for example with a million
    keys that have the same hash."""
    right = (test.expected, *test.also_right)
    return 8 * max(len(json.dumps(value)) for value in right) + 4_000


def _request(test: CallTest) -> bytes:
    arguments = [encode(argument) for argument in test.arguments]
    return json.dumps({"call": test.function, "arguments": arguments, "named": {}}).encode()


def _limits_for_tests(limits: Limits, tests: int) -> Limits:
    """Limits for a process that runs several tests. Each test gets its own time, and so do the
    first lines. CPU time is shared by the tests, so the wall clock ends a hanging one."""
    wall = min(_MAX_SECONDS, limits.wall_seconds * (tests + 1) + 1)
    cpu = min(_MAX_SECONDS, limits.cpu_seconds * (tests + 1))
    return limits.model_copy(update={"wall_seconds": wall, "cpu_seconds": cpu})
