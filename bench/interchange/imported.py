"""Converts another tool's evaluation to our form: an output directory, or its facts.

There is one arm, named after the model. Each sample is an item; samples of several epochs are
attempts at one question. One scorer decides the verdict: only a score of 1 is right, and the
measure `score` has the score itself, from 0 to 1. Samples without a score by this scorer are left
out and listed.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.records import JsonObject, Latency, Outcome, PolicyRef, Usage
from loopline.agents.tools.answers import replace_surrogates
from loopline.agents.usage import UsageEntry
from loopline.bench.append_log import AppendLog
from loopline.bench.benchmark import Benchmark
from loopline.bench.datasets import Dataset, Request
from loopline.bench.errors import UsageError
from loopline.bench.interchange.evaluations import Evaluation, Sample, name_some
from loopline.bench.interchange.inspect_logs import read_inspect_log
from loopline.bench.interchange.lm_eval_samples import read_lm_eval_samples
from loopline.bench.judgement import Judge
from loopline.bench.ledger import Ledger
from loopline.bench.origins import Origin
from loopline.bench.output import Manifest, ManifestItem, OutputDirectory, StoredRuns, new_folder
from loopline.bench.report.computation import compute
from loopline.bench.report.facts import Facts
from loopline.bench.results import Admission, Result, Seconds
from loopline.bench.taxonomy import Class
from loopline.bench.text_answers import SCORE

NAME = "imported"
READERS = {".eval": read_inspect_log, ".jsonl": read_lm_eval_samples}
"""Readers by file name suffix."""
_STRANGE = re.compile(r"[^\w./@+-]+")
_ANSWER_CHARS = 200


def is_foreign(path: Path) -> bool:
    """Whether a path is a file to import, not one of our output directories."""
    return path.suffix in READERS and not path.is_dir()


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation. Raises UsageError for another kind of file, DataError for an unreadable
    one."""
    reader = READERS.get(path.suffix)
    if reader is None:
        advice = (
            "; convert it with `inspect log convert --to eval`" if path.suffix == ".json" else ""
        )
        raise UsageError(
            f"{path}: neither an inspect log (.eval) nor lm-eval samples (.jsonl){advice}"
        )
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    return reader(path)


@dataclass(frozen=True)
class Imported:
    """An evaluation as the content of an output directory."""

    manifest: Manifest
    results: tuple[Result, ...]
    ledger: tuple[UsageEntry, ...]
    notices: tuple[str, ...]

    def facts(self) -> Facts:
        """Return the facts without writing a directory."""
        stored = StoredRuns()
        for result in self.results:
            key = result.arm, result.item
            stored.admitted[key] = result.run_id
            stored.runs[result.run_id] = key
            stored.results[key] = result
        return compute(self.manifest, stored, self.ledger)

    def write(self, path: Path) -> OutputDirectory:
        """Write an output directory. The manifest is written last: without it the folder is not a
        benchmark, so an interrupted import is never mistaken for a complete one. Raises UsageError
        for a folder that is not empty, OutputError if it can't be written."""
        directory = OutputDirectory(new_folder(path))
        again = f"empty {path}, and import again"
        ledger = Ledger(directory.ledger_path)
        ledger.add(self.ledger)
        ledger.sync()
        ledger.close()
        _write_lines(
            directory.transcripts_path, (_transcript(result) for result in self.results), again
        )
        lines = (
            record.model_dump(mode="json")
            for result in self.results
            for record in (
                Admission(run_id=result.run_id, arm=result.arm, item=result.item),
                result,
            )
        )
        _write_lines(directory.items_path, lines, again)
        directory.create(self.manifest)
        return directory


def import_evaluation(
    evaluation: Evaluation, scorer: str | None = None, command: tuple[str, ...] = ()
) -> Imported:
    """Convert an evaluation. Raises UsageError if the scorer is ambiguous, or scored nothing."""
    name = evaluation.scorer(scorer)
    arm = _STRANGE.sub("-", evaluation.model) or "model"
    scored_samples = [sample for sample in evaluation.samples if name in sample.scores]
    attempts = Counter(sample.id for sample in scored_samples)
    unscored = tuple(_attempt(sample) for sample in evaluation.samples if name not in sample.scores)
    notices = list(evaluation.notices)
    if unscored:
        notices.append(
            f"{evaluation.path}: left out because {name} has not scored them: {len(unscored):,} of "
            f"{len(evaluation.samples):,} samples ({name_some(unscored)})"
        )
    items: list[ManifestItem] = []
    results: list[Result] = []
    entries: list[UsageEntry] = []
    for sample in scored_samples:
        item = _attempt(sample) if attempts[sample.id] > 1 or sample.epoch > 1 else sample.id
        run_id = hashlib.sha256(f"{evaluation.path.name}\0{item}".encode(errors="replace"))
        usage = _usage(sample, run_id.hexdigest()[:32], evaluation.created)
        items.append(
            ManifestItem(
                id=replace_surrogates(item),
                question=replace_surrogates(sample.question),
                gold=replace_surrogates(sample.target),
                about={"attempt_of": replace_surrogates(sample.id)},
            )
        )
        results.append(
            _result(
                sample,
                run_id.hexdigest()[:32],
                arm,
                replace_surrogates(item),
                sample.scores[name],
                usage,
            )
        )
        entries += usage
    reference: JsonObject = {
        "format": evaluation.format,
        "scorer": name,
        "attempts": max(attempts.values()),
        "unscored": [replace_surrogates(place) for place in unscored],
    }
    manifest = Manifest(
        benchmark=NAME,
        origin=Origin(object=f"{__name__}:BENCHMARK"),
        command=command,
        created=evaluation.created or time.time(),
        arms=(arm,),
        split="test",
        seed=123,
        source=f"{evaluation.task} ({evaluation.path.name}, {evaluation.format}, scorer {name})",
        available=len(evaluation.samples),
        options={},
        reference=reference,
        items=tuple(items),
    )
    return Imported(manifest, tuple(results), tuple(entries), tuple(notices))


def _attempt(sample: Sample) -> str:
    return f"{sample.id} (epoch {sample.epoch})"


def _usage(sample: Sample, run_id: str, at: float) -> list[UsageEntry]:
    return [
        UsageEntry(
            run_id=run_id,
            call_id=f"{run_id}/{number}",
            agent="assistant",
            turn=0,
            policy=PolicyRef(name=replace_surrogates(model), base=replace_surrogates(model)),
            usage=Usage(prompt=tokens.prompt, completion=tokens.completion, source="provider"),
            cost_micro_dollars=0,
            latency=Latency(),
            at=at,
        )
        for number, (model, tokens) in enumerate(sample.tokens.items())
    ]


def _result(
    sample: Sample, run_id: str, arm: str, item: str, score: float, usage: list[UsageEntry]
) -> Result:
    output = None if sample.output is None else replace_surrogates(sample.output)
    counts = [entry.usage for entry in usage if entry.usage]
    return Result(
        run_id=run_id,
        arm=arm,
        item=item,
        outcome=Outcome.ANSWERED if sample.error is None else Outcome.ERROR,
        reason=None if sample.error is None else replace_surrogates(sample.error),
        prediction=output,
        answer=(output or "")[:_ANSWER_CHARS],
        value=None,
        where="text" if output else "none",
        verdicts={SCORE: score == 1},
        signals=(),
        delegations=0,
        escalations=0,
        tools=0,
        calls=len(usage),
        prompt_tokens=sum(count.prompt for count in counts),
        completion_tokens=sum(count.completion for count in counts),
        micro_dollars=0,
        seconds=Seconds(wall=sample.seconds, queue=0.0, pools={}, other=sample.seconds),
        measures={SCORE: score},
    )


def _transcript(result: Result) -> JsonObject:
    """Return a transcript like that of `loopline.bench.results.transcript_of`, with the answer in
    one step."""
    return {
        "run_id": result.run_id,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "wall": result.seconds.wall,
        "steps": [
            {
                "agent": "assistant",
                "turn": 0,
                "branch": 0,
                "worker": "",
                "problem": None,
                "decision": "finish",
                "answer": result.prediction,
                "reason": result.reason,
                "start": 0.0,
                "end": result.seconds.wall,
                "waited": 0.0,
                "selected": 0,
                "calls": [],
            }
        ],
    }


def _write_lines(path: Path, records: Iterable[JsonObject], again: str) -> None:
    log = AppendLog(path, resume=again).open()
    try:
        for record in records:
            log.append(record)
        log.sync()
    finally:
        log.close()


def _refuse(request: Request) -> Dataset:
    raise UsageError(
        "an imported evaluation cannot be run; `bench report` and `bench compare` read it"
    )


def _refuse_resuming(manifest: Manifest) -> None:
    raise UsageError(f"{manifest.source} was imported: there is nothing to resume")


@contextmanager
def _no_judge(manifest: Manifest, problems: Path) -> Generator[Judge]:
    _refuse_resuming(manifest)
    yield  # pyright: ignore[reportReturnType]


def _class_of(result: Result, gold: str) -> Class:
    if result.right:
        return Class.RIGHT
    if result.outcome is Outcome.ERROR:
        return Class.ERROR
    return Class.WRONG_ANSWER


BENCHMARK = Benchmark(
    name=NAME,
    title="Imported evaluation",
    load=_refuse,
    judge=_no_judge,
    checkers={SCORE: "another tool's scorer; if it gives a share from 0 to 1, only 1 is right"},
    class_of=_class_of,
    classes={
        str(Class.WRONG_ANSWER): "the scorer gave less than 1",
        str(Class.ERROR): "the sample ended in an error",
    },
    require=_refuse_resuming,
    attempts=True,
)
