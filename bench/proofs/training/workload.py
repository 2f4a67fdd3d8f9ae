"""The common input of all trainers of `bench training`, and the clock that measures them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopline.trainers.data.token_rows import TokenRow

WARM = 2
"""Steps before the measured ones, in which memory is allocated and kernels are chosen."""
PIECE_TOKENS = 4_096
"""Tokens that go through the model at once: `train glpft`'s own default. Every form of trl's gets
the same, through its batch size and its gradient accumulation steps."""
CLIP = 1.0


@dataclass(frozen=True)
class Workload:
    """One training; a separate process reads everything from `folder`."""

    folder: Path
    size: str
    batch: int
    """Rows per step, on average."""
    steps: int
    """Measured steps."""
    threads: int
    seed: int

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def rows(self) -> list[TokenRow]:
        """Rows that `prepare` has written."""
        from loopline.trainers.data.token_rows import TokenRow

        read: list[list[list[int]]] = json.loads(self._rows_file.read_bytes())
        return [TokenRow(tuple(ids), tuple(map(bool, learned))) for ids, learned in read]

    @property
    def _rows_file(self) -> Path:
        return self.folder / "rows.json"

    def write(self, rows: tuple[TokenRow, ...]) -> None:
        """Write the rows for the other processes."""
        self._rows_file.write_text(
            json.dumps([[row.ids, [int(is_learned) for is_learned in row.learned]] for row in rows])
        )


@dataclass(frozen=True)
class Prepared:
    """The model and the rows that all trainers use."""

    parameters: int
    precision: str
    """Precision that `train glpft` chooses."""
    rows: int
    tokens: int
    longest: int
    learned: int

    @property
    def mean(self) -> float:
        return self.tokens / self.rows


@dataclass(frozen=True)
class Measured:
    """The measured steps of one training."""

    steps: int
    seconds: float
    tokens: int
    """Real tokens, without padding."""
    padding: int
    forwards: int
    """Number of calls of the model."""
    peak_memory_mb: float
    """Peak memory of the whole process, in megabytes."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def padding_share(self) -> float:
        return self.padding / (self.tokens + self.padding)


@dataclass
class _Mark:
    """Totals from the beginning to the end of a step."""

    at: float
    tokens: int
    real: int
    forwards: int


@dataclass
class Clock:
    """Counts the tokens that go through a model, and records the time whenever an optimizer has
    made a step. Every trainer gets the same torch hooks, so that all work between its steps
    counts."""

    marks: list[_Mark] = field(default_factory=list[_Mark])
    tokens: int = 0
    real: int = 0
    forwards: int = 0

    def watch(self, backbone: Any) -> None:
        """Count from here on; `backbone` is the part of the model that every forward pass goes
        through. A trainer without an attention mask is counted as one without padding."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        backbone.register_forward_pre_hook(self._on_forward, with_kwargs=True)
        register_optimizer_step_post_hook(self._record_step)

    def measured(self, peak_memory_mb: float, padding: int | None = None) -> Measured:
        """Return the measurements without the first steps; `padding` is the number of padding
        tokens if no attention mask shows them."""
        begin, end = self.marks[WARM - 1], self.marks[-1]
        tokens = end.tokens - begin.tokens
        if padding is None:
            padding = tokens - (end.real - begin.real)
        return Measured(
            steps=len(self.marks) - WARM,
            seconds=end.at - begin.at,
            tokens=tokens - padding,
            padding=padding,
            forwards=end.forwards - begin.forwards,
            peak_memory_mb=peak_memory_mb,
        )

    def _on_forward(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        del module
        ids = named["input_ids"] if "input_ids" in named else arguments[0]
        mask = named.get("attention_mask")
        self.tokens += int(ids.numel())
        self.real += int(ids.numel() if mask is None else mask.sum())
        self.forwards += 1

    def _record_step(self, *arguments: Any) -> None:
        del arguments
        self.marks.append(_Mark(time.perf_counter(), self.tokens, self.real, self.forwards))


def prepare(workload: Workload, samples: int) -> Prepared:
    """Write the model, with random weights, and the planner's rows of `samples` instructions.
    Takes seconds."""
    from loopline.agents.roles.umi.settings import UmiOptions
    from loopline.trainers.core.network import load_base
    from loopline.trainers.data.datasets import build
    from loopline.trainers.data.sources import from_worlds
    from loopline.trainers.glpft.from_scratch import write_new_model
    from loopline.trainers.glpft.rows import rows_of
    from loopline.trainers.glpft.settings import size
    from loopline.trainers.glpft.stage_training import AUTOCAST_FROM
    from loopline.trainers.glpft.stages import Stage

    model_size = size(workload.size)
    data = build(
        [from_worlds("train", samples, workload.seed)], UmiOptions(tool_style="signatures")
    )
    write_new_model(data, model_size, workload.seed, workload.model)
    planner = Stage("planner", ("planner",), 1.0)
    loaded = load_base(str(workload.model))
    rows = rows_of(data, planner, loaded, validation=0.0)
    workload.write(rows.training)
    parameters = int(loaded.model.num_parameters())
    return Prepared(
        parameters=parameters,
        precision="autocast to bf16" if parameters >= AUTOCAST_FROM else "fp32",
        rows=len(rows.training),
        tokens=rows.tokens,
        longest=max(len(row.ids) for row in rows.training),
        learned=sum(sum(row.learned) for row in rows.training),
    )
