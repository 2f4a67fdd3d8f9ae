"""Why a program failed a test, as one of a few classes.

By what the sandbox says of its end, else by the last line that it wrote or the exception that it
told. The latter is the program's own word: a program can at most choose the name of its failure.
"""

from __future__ import annotations

import re

from loopline.agents.environments.code import AssertionTest, CodeTest
from loopline.agents.judging import Failure
from loopline.workers.sandbox import Ending
from loopline.workers.sandbox.judge import OF_THE_TEST, Outcome

_REFUSED = re.compile(
    r"PermissionError|Operation not permitted|Read-only file system|Network is unreachable"
    r"|gaierror|name resolution|can't start new thread"
)
"""What the sandbox's refusals look like from inside."""

_ENDED = {
    Ending.TIMED_OUT: Failure.TIMED_OUT,
    Ending.OUT_OF_MEMORY: Failure.REFUSED,
    Ending.OUTPUT_TOO_LONG: Failure.REFUSED,
    Ending.KILLED: Failure.CRASHED,
}


def failure_of(outcome: Outcome, test: CodeTest) -> Failure | None:
    """The class of an outcome; None for a test that was passed."""
    if outcome.passed:
        return None
    why = outcome.why.removeprefix(OF_THE_TEST)
    wrong = "AssertionError" if isinstance(test, AssertionTest) else "wrong answer"
    return Failure.WRONG_ANSWER if why.startswith(wrong) else failure_by(why)


def failure_by(why: str) -> Failure:
    """The same for a program that gave no answer: from how it ended, and what it said last."""
    for ending, failure in _ENDED.items():
        if why.startswith(ending):
            return failure
    return Failure.REFUSED if _REFUSED.search(why) else Failure.CRASHED
