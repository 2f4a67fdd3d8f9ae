"""Problems with their tests or gold answers, in a folder of the judge's machine.

A file contains one problem, and its name is the SHA-256 of its content. A run refers to that hash,
so it is always judged by exactly the tests that it was made for. Files are written atomically and
never changed, so folders can be copied and merged.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from loopline.agents.environments.code import CodeProblem
from loopline.agents.environments.math_team import MathProblem
from loopline.agents.records import Record
from loopline.workers.atomic_files import write_atomic

MAX_FILE_BYTES = 256 * 2**20
_KEPT = 256
_KEY = re.compile(r"[0-9a-f]{64}")


class ProblemUnknown(LookupError):
    """The folder does not contain this problem; the message says what to do."""


class _Code(Record):
    kind: Literal["code"] = "code"
    problem: CodeProblem


class _Math(Record):
    kind: Literal["math"] = "math"
    problem: MathProblem


_file: TypeAdapter[_Code | _Math] = TypeAdapter(
    Annotated[_Code | _Math, Field(discriminator="kind")]
)


class ProblemFolder:
    """A folder of problems; created when the first one is added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: OrderedDict[str, CodeProblem | MathProblem] = OrderedDict()

    def add(self, problem: CodeProblem | MathProblem) -> str:
        """Store a problem, replacing a damaged file; returns its key. Raises OSError."""
        content = _content(problem)
        key = hashlib.sha256(content).hexdigest()
        path = self._file(key)
        if not path.exists() or path.read_bytes() != content:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
        return key

    def copy_to(self, destination: ProblemFolder, keys: Iterable[str]) -> None:
        """Copy these problems to another folder. Raises ProblemUnknown, or OSError."""
        for key in keys:
            destination.add(self._get(key))

    def code(self, key: str) -> CodeProblem:
        """The programming problem with this key. Raises ProblemUnknown."""
        problem = self._get(key)
        if not isinstance(problem, CodeProblem):
            raise ProblemUnknown(f"problem {key[:12]} is not a programming problem")
        return problem

    def math(self, key: str) -> MathProblem:
        """The mathematics problem with this key. Raises ProblemUnknown."""
        problem = self._get(key)
        if not isinstance(problem, MathProblem):
            raise ProblemUnknown(f"problem {key[:12]} is not a mathematics problem")
        return problem

    def _get(self, key: str) -> CodeProblem | MathProblem:
        if key not in self._known:
            self._known[key] = self._read(key)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    def _read(self, key: str) -> CodeProblem | MathProblem:
        if _KEY.fullmatch(key) is None:
            raise ProblemUnknown(f"{key[:80]!r} is not a problem's hash")
        path = self._file(key)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ProblemUnknown(f"{path.name} in the judge's folder is too large")
            content = path.read_bytes()
        except FileNotFoundError:
            raise ProblemUnknown(
                f"no problem {key[:12]} is in this judge's folder: copy the file {path.name} there "
                "from the folder `problems` of the benchmark that asks for it, or of the state "
                "directory in which `bench tasks` was run"
            ) from None
        except OSError as error:
            raise ProblemUnknown(f"{path.name} in the judge's folder: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != key:
            raise ProblemUnknown(f"{path.name} in the judge's folder is damaged: write it again")
        try:
            return _file.validate_json(content).problem
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ProblemUnknown(
                f"{path.name} in the judge's folder does not fit this version: {where}: "
                f"{first['msg']}"
            ) from error

    def _file(self, key: str) -> Path:
        return self.path / f"{key}.json"


def key_of(problem: CodeProblem | MathProblem) -> str:
    """The key of a problem in every folder."""
    return hashlib.sha256(_content(problem)).hexdigest()


def _content(problem: CodeProblem | MathProblem) -> bytes:
    whole = _Code(problem=problem) if isinstance(problem, CodeProblem) else _Math(problem=problem)
    return whole.model_dump_json().encode()
