"""The `bfcl-eval` package's own checker, with which ours is compared.

The package pins an old NumPy and requires the client of every model vendor, so it can't share an
environment with this project: `make test` installs it separately into `.venv/bfcl-eval`. Its
checker needs one thing from the rest: a table of the models whose APIs allow no dots in names. That
table imports all those clients, so a table with one model replaces it.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from loopline.bench.checkers.tool_calls import ToolCall
from loopline.bench.datasets.bfcl import Question

FOLDER = Path(sys.prefix) / "bfcl-eval"
_MODEL = "any"
_TABLE = "bfcl_eval.constants.model_config"


class PublishedChecker:
    """The function `ast_checker` for Python."""

    def __init__(self) -> None:
        if not (FOLDER / "bfcl_eval").is_dir():
            pytest.skip("bfcl-eval is not installed; make test puts it alongside the environment")
        table = ModuleType(_TABLE)
        table.__dict__["MODEL_CONFIG_MAPPING"] = {_MODEL: SimpleNamespace(underscore_to_dot=False)}
        sys.modules[_TABLE] = table
        sys.path.append(str(FOLDER))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                enums = importlib.import_module("bfcl_eval.constants.enums")
                checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        finally:
            sys.path.remove(str(FOLDER))
        self._check: Any = checker.__dict__["ast_checker"]
        self._python: Any = enums.__dict__["Language"].PYTHON

    def verdict(self, question: Question, calls: list[ToolCall]) -> dict[str, Any]:
        """Its result: `valid`, `error`, `error_type`. Passes on the checker's exceptions."""
        result: dict[str, Any] = self._check(
            [function.model_dump(exclude_unset=True) for function in question.functions],
            [{call.name: dict(call.arguments)} for call in calls],
            [{wanted.name: wanted.arguments} for wanted in question.wanted],
            self._python,
            question.category,
            _MODEL,
        )
        return result
