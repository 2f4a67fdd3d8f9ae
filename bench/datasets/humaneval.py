"""HumanEval (openai/human-eval, MIT): functions to complete, each with a checking function.

A row's prompt is the function's head with its docstring, sometimes after imports and helpers. Its
test is a module with `check(candidate)`; as published, the whole module is one test.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from loopline.agents.environments.code import AssertionTest, CodeProblem
from loopline.agents.environments.code.extraction import parse_program
from loopline.bench.datasets.code_problems import validate_record
from loopline.bench.datasets.location import data_root, find
from loopline.trainers.data.json_files import Reading, Unreadable, fit, read_lines

SOURCE = "https://github.com/openai/human-eval (data/HumanEval.jsonl.gz)"
_FOLDERS = ("code/humaneval", "humaneval", "data", "")
_FILE = "HumanEval.jsonl"
MAX_TEXT = 100_000


class _Row(BaseModel):
    task_id: str = Field(pattern=r"^HumanEval/\d+$")
    prompt: str = Field(min_length=1, max_length=MAX_TEXT)
    entry_point: str = Field(min_length=1, max_length=200)
    canonical_solution: str = Field(min_length=1, max_length=MAX_TEXT)
    test: str = Field(min_length=1, max_length=MAX_TEXT)


def load(data: Path | None = None) -> Reading[CodeProblem]:
    """Read every problem in file order. Raises DataError."""
    path = find(data_root("HumanEval", data, SOURCE), _FOLDERS, _FILE, SOURCE)

    def problem(_: int, value: Any) -> CodeProblem:
        row = fit(_Row, value)
        return validate_record(
            CodeProblem,
            id=row.task_id.lower(),
            statement=row.prompt,
            starter_code=row.prompt,
            preamble=_prompt_preamble(row.prompt, row.entry_point),
            tests=(validate_record(AssertionTest, source=f"{row.test}\ncheck({row.entry_point})"),),
            # The judge has its own copy of the prompt's helpers, since tests may use them.
            setup=row.prompt,
            names=(row.entry_point,),
            solutions=(row.prompt + row.canonical_solution,),
        )

    return read_lines(path, problem)


def _prompt_preamble(prompt: str, function: str) -> str:
    """Return the prompt's imports and helpers: a model that repeats the function often omits
    them."""
    try:
        tree = parse_program(prompt)
    except ValueError as error:
        raise Unreadable("the prompt is not Python", str(error)) from error
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    return "\n".join(
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, kinds) and getattr(node, "name", "") != function
    )
