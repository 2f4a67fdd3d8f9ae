"""`bench export`: converts an output directory to the formats of other tools.

    inspect   ARM.eval                                     one log per arm
    lm-eval   ARM/samples_BENCHMARK_DATE.jsonl             samples and results per arm
              ARM/results_DATE.json
    csv       runs.csv                                     one row per run
    latex     accuracy.tex, differences.tex                tables for the booktabs package

Attempts at one question are epochs in an inspect log; elsewhere each attempt is separate.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loopline.agents.usage import UsageEntry, deduplicate_usage
from loopline.bench.errors import OutputError, UsageError
from loopline.bench.interchange.latex import accuracy_table, differences_table
from loopline.bench.ledger import read_ledger
from loopline.bench.output import ManifestItem, OutputDirectory
from loopline.bench.report.computation import facts_of
from loopline.bench.report.facts import BROKEN, ArmRuns, Facts
from loopline.bench.results import Result
from loopline.bench.teams.findings import instances_of
from loopline.runtime.interchange.inspect_log import LogHeader, LogSample, write_inspect_log
from loopline.workers.atomic_files import atomic_file, write_atomic

_STRANGE = re.compile(r"[^A-Za-z0-9._@+-]+")


def export(directory: OutputDirectory, form: str, output: Path) -> list[Path]:
    """Write the files, each completely or not at all, replacing earlier ones; return their paths.
    Raises UsageError for an unknown format, OutputError if a file can't be written."""
    if form not in WRITERS:
        raise UsageError(f"--format: there is no {form!r}; there are: {', '.join(WRITERS)}")
    facts = facts_of(directory)
    if not any(arm.results for arm in facts.arms):
        raise UsageError(f"{directory.path} has no finished run to export")
    try:
        output.mkdir(parents=True, exist_ok=True)
        return list(WRITERS[form](directory, facts, output))
    except OSError as error:
        raise OutputError(
            f"{error.filename or output}: cannot be written ({error.strerror or error}); "
            "choose another --output"
        ) from error


def _inspect(directory: OutputDirectory, facts: Facts, output: Path) -> Iterator[Path]:
    tokens = _tokens_by_run(read_ledger(directory.ledger_path))
    manifest = facts.manifest
    for arm in facts.arms:
        path = output / f"{_file_name(arm.name)}.eval"
        header = LogHeader(
            id=_digest(directory.path.name, arm.name),
            task=manifest.benchmark,
            model=f"loopline/{arm.name}",
            created=manifest.created,
            complete=arm.name not in facts.results["not_done"],
            dataset=manifest.source,
            metrics=_means(facts, arm),
            metadata={"split": manifest.split, "seed": manifest.seed, "arm": arm.name},
        )
        write_inspect_log(path, header, _log_samples(facts, arm, tokens))
        yield path


def _log_samples(
    facts: Facts, arm: ArmRuns, tokens: dict[str, dict[str, tuple[int, int]]]
) -> Iterator[LogSample]:
    instance_of = instances_of(facts.manifest)
    epochs: dict[str, int] = defaultdict(int)
    for result in arm.results:
        item = facts.items[result.item]
        question = instance_of[item.id]
        epochs[question] += 1
        answer = result.prediction or ""
        yield LogSample(
            id=question,
            epoch=epochs[question],
            input=item.question,
            target=item.gold,
            messages=(
                {"role": "user", "content": item.question, "source": "input"},
                {"role": "assistant", "content": answer, "source": "generate"},
            ),
            model=f"loopline/{arm.name}",
            completion=answer,
            scores={name: "C" if right else "I" for name, right in result.verdicts.items()}
            | {f"measure/{name}": value for name, value in result.measures.items()},
            started=facts.manifest.created,
            seconds=result.seconds.wall,
            uuid=result.run_id,
            tokens=tokens.get(result.run_id, {}),
            metadata={"item": item.id, "class": arm.classes[item.id], **_plain(item)},
            error=_error(result),
            answer=result.answer,
        )


def _lm_eval(directory: OutputDirectory, facts: Facts, output: Path) -> Iterator[Path]:
    manifest = facts.manifest
    date = time.strftime("%Y-%m-%dT%H-%M-%S.000000", time.gmtime(manifest.created))
    task = _file_name(manifest.benchmark)
    for arm in facts.arms:
        folder = output / _file_name(arm.name)
        folder.mkdir(exist_ok=True)
        samples = folder / f"samples_{task}_{date}.jsonl"
        with atomic_file(samples) as partial, partial.open("w", encoding="utf-8") as file:
            for number, result in enumerate(arm.results):
                line = _lm_eval_line(number, facts.items[result.item], result)
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        yield samples
        results = folder / f"results_{date}.json"
        write_atomic(results, json.dumps(_lm_eval_results(facts, arm, task), indent=2) + "\n")
        yield results


def _lm_eval_line(number: int, item: ManifestItem, result: Result) -> dict[str, Any]:
    doc = {"id": item.id, "question": item.question, "answer": item.gold}
    text = result.prediction or ""
    return {
        "doc_id": number,
        "doc": doc,
        "target": item.gold,
        "arguments": {"gen_args_0": {"arg_0": item.question, "arg_1": {}}},
        "resps": [[text]],
        "filtered_resps": [text],
        "filter": "none",
        "metrics": [*result.verdicts, *result.measures],
        "doc_hash": _sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _sha256(item.question),
        "target_hash": _sha256(item.gold),
        **{name: float(right) for name, right in result.verdicts.items()},
        **{name: value for name, value in result.measures.items() if math.isfinite(value)},
    }


def _lm_eval_results(facts: Facts, arm: ArmRuns, task: str) -> dict[str, Any]:
    n = len(arm.results)
    figures: dict[str, Any] = {"alias": task, "sample_len": n}
    for name, mean in _means(facts, arm).items():
        figures[f"{name},none"] = mean
        figures[f"{name}_stderr,none"] = math.sqrt(mean * (1 - mean) / (n - 1)) if n > 1 else None
    return {
        "results": {task: figures},
        "group_subtasks": {},
        "configs": {task: {"task": task, "output_type": "generate_until", "num_fewshot": 0}},
        "versions": {task: 0},
        "n-shot": {task: 0},
        "higher_is_better": {task: dict.fromkeys(_means(facts, arm), True)},
        "n-samples": {task: {"original": facts.manifest.available, "effective": n}},
        "config": {"model": "loopline", "model_args": {"arm": arm.name}},
        "date": facts.manifest.created,
        "model_name": arm.name,
        "model_source": "loopline",
    }


def _csv(directory: OutputDirectory, facts: Facts, output: Path) -> Iterator[Path]:
    """Write the table. Texts are unchanged, so a model's text may start with `=`, which
    spreadsheets treat as a formula."""
    path = output / "runs.csv"
    runs = [result for arm in facts.arms for result in arm.results]
    measures = list(dict.fromkeys(name for result in runs for name in result.measures))
    checkers = list(facts.checkers)
    head = [
        "benchmark", "arm", "item", "question", "gold", "answer", "prediction", "outcome", "class",
        *(f"right_{name}" for name in checkers), *(f"measure_{name}" for name in measures),
        "calls", "prompt_tokens", "completion_tokens", "micro_dollars", "seconds", "run_id",
    ]  # fmt: skip
    with atomic_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for arm in facts.arms:
            has_unpriced = bool(facts.results["arms"][arm.name]["unpriced"])
            for result in arm.results:
                item = facts.items[result.item]
                writer.writerow(
                    [
                        facts.manifest.benchmark, arm.name, item.id, item.question, item.gold,
                        result.answer, result.prediction, str(result.outcome),
                        arm.classes[item.id],
                        *(int(result.verdicts[name]) for name in checkers),
                        *(result.measures.get(name) for name in measures),
                        result.calls, result.prompt_tokens, result.completion_tokens,
                        result.micro_dollars or (None if has_unpriced else 0),
                        result.seconds.wall, result.run_id,
                    ]
                )  # fmt: skip
    yield path


def _latex(directory: OutputDirectory, facts: Facts, output: Path) -> Iterator[Path]:
    path = output / "accuracy.tex"
    write_atomic(path, accuracy_table(facts))
    yield path
    if facts.results["pairs"]:
        path = output / "differences.tex"
        write_atomic(path, differences_table(facts))
        yield path


WRITERS: dict[str, Callable[[OutputDirectory, Facts, Path], Iterator[Path]]] = {
    "inspect": _inspect,
    "lm-eval": _lm_eval,
    "csv": _csv,
    "latex": _latex,
}


def _means(facts: Facts, arm: ArmRuns) -> dict[str, float]:
    """Return shares of right answers by checker; empty for an arm without a finished run."""
    n = len(arm.results)
    return {name: arm.right(name) / n for name in facts.checkers} if n else {}


def _tokens_by_run(entries: list[UsageEntry]) -> dict[str, dict[str, tuple[int, int]]]:
    """Return prompt and completion tokens by run and model, without discarded calls, which are not
    part of a run's sample."""
    tokens: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for entry in deduplicate_usage(entries):
        if entry.usage is None or entry.discarded:
            continue
        model = entry.policy.adapter or entry.policy.base
        read, wrote = tokens[entry.run_id].get(model, (0, 0))
        tokens[entry.run_id][model] = (
            read + entry.usage.prompt,
            wrote + entry.usage.completion,
        )
    return tokens


def _plain(item: ManifestItem) -> dict[str, Any]:
    """Return an item's facts that are plain values."""
    return {
        name: value
        for name, value in item.about.items()
        if isinstance(value, str | int | float | bool) and name not in ("item", "class")
    }


def _error(result: Result) -> str | None:
    return (result.reason or str(result.outcome)) if result.outcome in BROKEN else None


def _file_name(text: str) -> str:
    return _STRANGE.sub("-", text).strip("-.") or "arm"


def _digest(*words: str) -> str:
    return _sha256("\0".join(words))[:22]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
