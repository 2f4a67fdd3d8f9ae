"""Log-probabilities of the tokens that a training learned from: a trainer writes them, and the page
of a run shows them.

    TRAINING/learned-tokens/<step>-<process>.parquet

A row is a sequence as the model processed it: prompts, observations and completions, and for each
learned token the log-probabilities of the three policies in an importance ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from loopline.agents.records import Record
from loopline.runtime.errors import InputError
from loopline.workers.atomic_files import atomic_file

LEARNED_TOKENS = "learned-tokens"
"""Return the folder of a training's record."""


class LearnedSequence(Record):
    """One sequence in one step. The lists after `learned` have one entry per learned token."""

    run_id: str
    sample: str
    """Name of the sample: run, turn, branch, agent and candidate; if whole runs compete, run and
    agent."""
    step: int
    """Number of the step, from 1."""
    policy: str
    """The trained policy."""
    version: int
    """Version of the trained weights."""
    sampled_version: int
    """Version of the weights that sampled the sequence."""
    advantage: float
    ids: tuple[int, ...]
    learned: tuple[bool, ...]
    """Whether each token of `ids` is learned; prompts and observations are not."""
    behaviour: tuple[float, ...]
    """log π_behav of each token, as sampled."""
    proximal: tuple[float, ...]
    """log π_prox: under the weights at the start of the step."""
    trained: tuple[float, ...]
    """log π_θ when the token was learned; equals π_prox in a step with one update."""
    weights: tuple[float, ...]
    """Factors in the loss that correct for the sampler: truncated, 0 for a sequence that was left
    out, 1 without a correction."""
    clipped: tuple[bool, ...]
    """Whether the loss had no gradient."""

    @model_validator(mode="after")
    def _require_equal_lengths(self) -> Self:
        counts = {len(values) for values in (self.behaviour, self.proximal, self.trained)}
        counts |= {len(self.weights), len(self.clipped), sum(self.learned)}
        if len(counts) != 1 or len(self.ids) != len(self.learned):
            raise ValueError("its lists differ in length")
        return self

    @property
    def ratios(self) -> tuple[float, ...]:
        """π_θ/π_behav of each learned token."""
        pairs = zip(self.trained, self.behaviour, strict=True)
        return tuple(math.exp(min(now - then, 700.0)) for now, then in pairs)


def write_learned(path: Path, sequences: Sequence[LearnedSequence]) -> None:
    """Write a file of the record atomically and flush it to disk. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(
        [sequence.model_dump() for sequence in sequences], schema=_schema()
    )
    with atomic_file(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def read_learned(training: Path, run_id: str) -> tuple[LearnedSequence, ...]:
    """Return all sequences of a run that a training learned from, in the order of the steps. Raises
    `InputError` for a folder whose record is missing or unreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = training / LEARNED_TOKENS
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(
            f"{training} has no record of learned tokens",
            hint="`train grpo loop OUTPUT --keep-ratios TOKENS` writes one; give its OUTPUT.",
        )
    sequences: list[LearnedSequence] = []
    for file in files:
        try:
            table: Any = pq.read_table(file, filters=[("run_id", "=", run_id)])
            sequences += [LearnedSequence.model_validate(row) for row in table.to_pylist()]
        except (OSError, pa.ArrowException, ValidationError) as error:
            message = " ".join(str(error).split())[:160]
            raise InputError(f"{file} can't be read ({message})", hint="Remove it.") from error
    return tuple(sequences)


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("run_id", pa.string()),
            ("sample", pa.string()),
            ("step", pa.int32()),
            ("policy", pa.string()),
            ("version", pa.int32()),
            ("sampled_version", pa.int32()),
            ("advantage", pa.float64()),
            ("ids", pa.list_(pa.int32())),
            ("learned", pa.list_(pa.bool_())),
            ("behaviour", pa.list_(pa.float32())),
            ("proximal", pa.list_(pa.float32())),
            ("trained", pa.list_(pa.float32())),
            ("weights", pa.list_(pa.float32())),
            ("clipped", pa.list_(pa.bool_())),
        ]
    )
