"""The output directory of a benchmark: everything that resuming and reporting need.

manifest.json      the request: command, arms, the questions themselves, models, prices
items.jsonl        admitted run ids (on the disk before admission), then results
transcripts.jsonl  the dialogue of each run, for readers
ledger.jsonl       one line per model call that was paid for
problems/          hidden tests and gold answers for the judge, if there are any
report.html|md|json
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from loopline.agents.environments.code import CodeProblem
from loopline.agents.environments.math_team import MathProblem
from loopline.agents.prompts import PromptSet
from loopline.agents.records import JsonObject, Record
from loopline.bench.append_log import corrupt_line_error, read_log, torn_notice
from loopline.bench.datasets import Item
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.origins import Origin
from loopline.bench.results import Admission, Result
from loopline.workers.atomic_files import write_atomic
from loopline.workers.file_lock import FileLock
from loopline.workers.judging.problems import ProblemFolder

MANIFEST_VERSION = 1


class ManifestItem(Record):
    """A question as it was asked. The manifest has a copy because the data set may move or
    change."""

    id: str
    question: str
    gold: str
    about: JsonObject = Field(default_factory=dict)

    @property
    def task(self) -> tuple[str, JsonObject] | None:
        """Environment and instance of the run that asks it, if the data set defines them."""
        match self.about.get("task"):
            case {"environment": str(environment), "instance": dict(instance)}:
                return environment, instance
            case _:
                return None


class PoolFacts(Record):
    """Model that served a pool, as configured."""

    engine: str
    model: str
    price: dict[str, str]
    """US dollars per million tokens: prompt, cached, completion."""


class Manifest(Record):
    """The request of a benchmark. It never changes after the first admission, except for the scorer
    of `bench rescore --scorer`."""

    version: int = MANIFEST_VERSION
    benchmark: str
    """Name of the benchmark."""
    origin: Origin | None = None
    """Origin of the benchmark, if not this package or an entry point."""
    command: tuple[str, ...]
    created: float
    arms: tuple[str, ...]
    split: str
    seed: int
    source: str
    available: int
    calculator: bool = True
    prompt_set: PromptSet = "mathematics"
    """Prompts that `solo` and `delegate` read. Older manifests lack it: there was only one set."""
    options: JsonObject | None = None
    """Options of the workflows; without them, only the calculator and the prompts are set."""
    reference: JsonObject = Field(default_factory=dict)
    """Facts that the judge needs in addition to the items."""
    concurrency: int = 32
    budget_micro_dollars: int | None = None
    budget_tokens: int | None = None
    budget_milliseconds: int | None = None
    """Total milliseconds that its runs may take."""
    compat: str | None = None
    profile: str | None = None
    run_seconds: float = 600.0
    """Seconds until the deadline of each run."""
    pools: dict[str, PoolFacts] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    """Hash of each of the deployment's own prompt files that replace shipped ones."""
    policies: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Policies by arm and role. Older manifests have only the arms whose roles are swapped."""
    versions: dict[str, str] = Field(default_factory=dict)
    items: tuple[ManifestItem, ...]

    @property
    def workflow_options(self) -> JsonObject:
        if self.options is not None:
            return self.options
        general: JsonObject = {"prompts": "general"} if self.prompt_set == "general" else {}
        return {"calculator": self.calculator, **general}


@dataclass
class StoredRuns:
    """Everything that a directory contains about its runs."""

    admitted: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Run id by (arm, item); the last one if there are several."""
    runs: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """(arm, item) by run id, for every run that was ever admitted."""
    results: dict[tuple[str, str], Result] = field(default_factory=dict[tuple[str, str], Result])
    notices: list[str] = field(default_factory=list[str])


class OutputDirectory:
    """Paths and readers; the runner writes the logs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock")

    @property
    def manifest_path(self) -> Path:
        return self.path / "manifest.json"

    @property
    def items_path(self) -> Path:
        return self.path / "items.jsonl"

    @property
    def transcripts_path(self) -> Path:
        return self.path / "transcripts.jsonl"

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def problems(self) -> Path:
        return self.path / "problems"

    def create(
        self, manifest: Manifest, problems: Iterable[CodeProblem | MathProblem] = ()
    ) -> None:
        """Create the directory with its manifest and the judge's problems. If interrupted, it
        leaves no manifest and can be repeated. Raises UsageError if the directory contains a
        benchmark, and OutputError if it can't be written."""
        if self.manifest_path.exists():
            raise UsageError(
                f"{self.path} already holds a benchmark; continue it with "
                f"`bench resume {self.path}`, or choose another --output"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Problems come first: a manifest has only their hashes, which are not enough to resume.
            folder = ProblemFolder(self.problems)
            for problem in problems:
                folder.add(problem)
            write_atomic(self.manifest_path, manifest.model_dump_json(indent=1))
        except OSError as error:
            raise OutputError(
                f"{error.filename or self.path}: cannot be written ({error.strerror or error}); "
                "choose another --output"
            ) from error

    def replace_manifest(self, manifest: Manifest) -> None:
        """Write the manifest. Raises OutputError if it can't be written."""
        try:
            write_atomic(self.manifest_path, manifest.model_dump_json(indent=1))
        except OSError as error:
            raise OutputError(
                f"{self.manifest_path}: cannot be written ({error.strerror or error})"
            ) from error

    def lock(self) -> None:
        """Lock this directory against a second bench while this process lives."""
        try:
            self._lock.acquire()
        except BlockingIOError:
            raise OutputError(
                f"{self.path}: another bench is using this directory; wait for it, or stop it"
            ) from None

    def unlock(self) -> None:
        """Release the lock."""
        self._lock.release()

    def manifest(self) -> Manifest:
        """Read the manifest. Raises UsageError if there is none, OutputError if it is damaged."""
        if not self.path.is_dir():
            raise UsageError(f"{self.path}: there is no such directory")
        try:
            text = self.manifest_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UsageError(
                f"{self.path} holds no benchmark (no manifest.json); give a directory that "
                "`bench gsm8k` or another benchmark has written"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise OutputError(f"{self.manifest_path}: cannot be read ({error})") from error
        try:
            return Manifest.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "file"
            raise OutputError(f"{self.manifest_path}: {where}: {first['msg']}") from error

    def stored(self) -> StoredRuns:
        """Read the admissions and results so far. Raises OutputError that names a damaged line."""
        stored = StoredRuns()
        for number, record in read_log(self.items_path):
            kind = record.get("type")
            try:
                if kind == "admitted":
                    admitted = Admission.model_validate(record)
                    key = admitted.arm, admitted.item
                    stored.admitted[key] = admitted.run_id
                    stored.runs[admitted.run_id] = key
                elif kind == "result":
                    # A later line replaces an earlier one: `rescore` appends lines.
                    result = Result.model_validate(record)
                    stored.results[(result.arm, result.item)] = result
                else:
                    raise corrupt_line_error(self.items_path, number, f"unknown type {kind!r}")
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                where = ".".join(str(part) for part in first["loc"])
                raise corrupt_line_error(
                    self.items_path, number, f"{where}: {first['msg']}"
                ) from error
        for path in (self.items_path, self.ledger_path, self.transcripts_path):
            notice = torn_notice(path)
            if notice:
                stored.notices.append(notice)
        return stored

    def transcripts(self) -> dict[str, dict[str, Any]]:
        """Return the transcripts by run id."""
        return {str(record.get("run_id")): record for _, record in read_log(self.transcripts_path)}


def new_folder(path: Path) -> Path:
    """Return the folder, created if missing. Raises UsageError if it is a file or not empty, and
    OutputError if it can't be created."""
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} is not an empty folder; choose another one")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror or error}); choose another folder"
        ) from error
    return path


def manifest_items(items: Sequence[Item]) -> tuple[ManifestItem, ...]:
    """Convert items to a manifest's form."""
    return tuple(
        ManifestItem(id=item.id, question=item.question, gold=item.gold, about=item.about)
        for item in items
    )
