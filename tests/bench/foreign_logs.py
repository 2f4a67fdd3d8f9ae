"""Evaluations of other tools: small real files, and files made for one test.

`cases/interchange` contains logs that inspect_ai 0.3.285 wrote for two generated tasks, and samples
that lm-eval 0.4.13 wrote for one with its model `dummy`.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases" / "interchange"
TWO_EPOCHS = CASES / "two-epochs.eval"
ONE_EPOCH = CASES / "one-epoch.eval"
LM_EVAL = CASES / "samples_sums_2026-11-26T16-15-20.485320.jsonl"


def inspect_sample(key: str, value: Any, epoch: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": key,
        "epoch": epoch,
        "input": f"What is {key}?",
        "target": "2",
        "output": {"completion": "2"},
        "scores": {"match": {"value": value}},
        "model_usage": {"small": {"input_tokens": 5, "output_tokens": 2}},
        "total_time": 0.5,
        **changes,
    }


def inspect_log(
    path: Path,
    *samples: dict[str, Any],
    header: dict[str, Any] | None = None,
    method: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """A log with these samples; `json.dumps` writes NaN as inspect does."""
    head = {
        "version": 2,
        "status": "success",
        "eval": {"task": "sums", "model": path.stem, "created": "2026-01-01T00:00:00+00:00"},
        **(header or {}),
    }
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", json.dumps(head))
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            archive.writestr(name, json.dumps(sample))
    return path


def lm_eval_line(key: int, score: Any, **changes: Any) -> dict[str, Any]:
    return {
        "doc_id": key,
        "doc": {"question": f"What is {key}?"},
        "target": "2",
        "filtered_resps": ["2"],
        "filter": "none",
        "metrics": ["acc"],
        "acc": score,
        **changes,
    }


def lm_eval_samples(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
