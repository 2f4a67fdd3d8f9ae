"""Programming problems: questions, tests, and the rewards of a pair of agents. Everything is pure:
programs are run and compared with tests elsewhere, in a sandbox.
"""

from __future__ import annotations

from loopline.agents.environments.code.comparison import outputs_agree, values_agree
from loopline.agents.environments.code.extraction import MAX_PROGRAM_CHARS, extract_code
from loopline.agents.environments.code.generated_test import read_test, show_test
from loopline.agents.environments.code.problem import (
    AssertionTest,
    CallTest,
    CodeProblem,
    CodeQuestion,
    CodeTest,
    ProgramTest,
    assemble_program,
)

__all__ = [
    "MAX_PROGRAM_CHARS", "AssertionTest", "CallTest", "CodeProblem", "CodeQuestion", "CodeTest",
    "ProgramTest", "assemble_program", "extract_code", "outputs_agree", "read_test", "show_test",
    "values_agree",
]  # fmt: skip
