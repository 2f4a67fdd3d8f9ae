"""A store of many recorded runs, written without recording them one by one.

The runs belong to `delegate`: 2 to 6 steps of one call each, which reads about 130 tokens and
writes about 20, as the micro models do on GSM8K. The texts come from a few templates, the tokens of
every call from a pool so large that a run does not compress with its neighbours.
"""

# pyarrow has no type stubs.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from loopline.agents.records import (
    Call,
    Candidate,
    Decision,
    Latency,
    Outcome,
    PolicyRef,
    Run,
    SamplingParams,
    Step,
    StepTimings,
    Task,
    Trajectory,
    Usage,
)
from loopline.workers.recorder import TRAJECTORY_SCHEMA
from loopline.workers.store.files import FileName, Place

BEGAN_MS = 1_790_000_000_000
"""Start of the first run, in Unix milliseconds."""
BETWEEN_MS = 40
"""Milliseconds between two runs."""
TEMPLATES = 60
POOL = 20_000
"""Number of calls with distinct tokens."""
_ID = "00000000-0000-7000-8000-000000000000"
_IDS, _OUT, _LOGPROBS = (987654321,), (876543210,), (-0.765432101,)


@dataclass(frozen=True)
class _Template:
    parts: tuple[str, ...]
    """A record, split at the tokens of a call."""
    trajectory: Trajectory


def write_runs(table: Path, runs: int, seed: int, batch: int) -> int:
    """Write this many runs like a recorder, one file per batch; return their steps."""
    table.mkdir(parents=True)
    rng = random.Random(seed)
    templates = [_template(rng) for _ in range(TEMPLATES)]
    pool = [_tokens(rng) for _ in range(POOL)]
    steps = 0
    for first in range(0, runs, batch):
        columns: dict[str, list[object]] = {name: [] for name in TRAJECTORY_SCHEMA.names}
        numbers = range(first, min(first + batch, runs))
        for number in numbers:
            steps += _add(columns, number, seed, rng.choice(templates), pool, rng)
        name = FileName(0, _place(numbers[0]), _place(numbers[-1]), len(numbers))
        rows = pa.table(columns, schema=TRAJECTORY_SCHEMA)
        pq.write_table(rows, table / str(name), compression="zstd", write_page_checksum=True)
    return steps


def run_id(number: int, seed: int) -> str:
    """Return a UUIDv7 with the run's time."""
    tail = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).hexdigest()
    text = f"{BEGAN_MS + number * BETWEEN_MS:012x}7{tail[:3]}8{tail[1:]}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _place(number: int) -> Place:
    return Place(BEGAN_MS + number * BETWEEN_MS + 2_000, 0)


def _add(
    columns: dict[str, list[object]],
    number: int,
    seed: int,
    template: _Template,
    pool: list[str],
    rng: random.Random,
) -> int:
    run, played = run_id(number, seed), template.trajectory
    parts = [template.parts[0]]
    for part in template.parts[1:]:
        parts += (pool[rng.randrange(POOL)], part)
    body = "".join(parts).replace(_ID, run)
    ended = _place(number).milliseconds / 1000
    row = {
        "shard": 0,
        "entry": str(_place(number)),
        "run_id": run,
        "generation": 0,
        "workflow": "delegate",
        "environment": "question",
        "outcome": "answered",
        "answer": played.answer,
        "reason": None,
        "created": ended - 2,
        "ended": ended,
        "steps": len(played.steps),
        "calls": len(played.steps),
        "tokens": 150 * len(played.steps),
        "cost_micro_dollars": 0,
        "tags": "{}",
        "trajectory": body,
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
    }
    for name, value in row.items():
        columns[name].append(value)
    return len(played.steps)


def _template(rng: random.Random) -> _Template:
    problem = f"{rng.choice('ABCDEFG')} has {rng.randrange(99)} apples. " * rng.randrange(2, 6)
    run = Run(
        id=_ID,
        task=Task(prompt=problem),
        workflow="delegate",
        policies={"planner": "llm", "slm": "slm"},
        created=BEGAN_MS / 1000,
        deadline=BEGAN_MS / 1000 + 600,
    )
    steps = tuple(_step(turn, problem, rng) for turn in range(rng.randrange(2, 7)))
    trajectory = Trajectory(
        run=run,
        steps=steps,
        outcome=Outcome.ANSWERED,
        answer=str(rng.randrange(1000)),
        ended=BEGAN_MS / 1000 + 2,
        # A training reads an unjudged run as a whole record.
        team_reward=float(rng.random() < 0.5),
    )
    parts = trajectory.model_dump_json().split(_marked())
    if len(parts) != len(steps) + 1:
        raise AssertionError("a record's tokens are in another order than its calls")
    return _Template(tuple(parts), trajectory)


def _step(turn: int, problem: str, rng: random.Random) -> Step:
    call = Call(
        id=f"{_ID}/{turn}.0/0",
        policy=PolicyRef(name="llm", base="micro-llm"),
        text="I hand this over: " + problem[: rng.randrange(20, 60)],
        prompt_ids=_IDS,
        output_ids=_OUT,
        logprobs=_LOGPROBS,
        sampling=SamplingParams(temperature=1.0, max_tokens=64),
        finish_reason="stop",
        usage=Usage(prompt=130, completion=20, source="engine"),
        cost_micro_dollars=0,
        latency=Latency(queue=0.01, first_token=0.05, decode=0.4),
        trainable=True,
    )
    return Step(
        run_id=_ID,
        turn=turn,
        agent="planner" if turn % 2 == 0 else "slm",
        input={"problem": problem, "expected_type": "number"},
        candidates=(Candidate(calls=(call,)),),
        decision=Decision(kind="delegate", data={"problem": problem, "attempt": turn}),
        timings=StepTimings(started=BEGAN_MS / 1000, ended=BEGAN_MS / 1000 + 0.5),
        worker="planner-1",
    )


def _marked() -> str:
    """Return the token fields in the format of a record."""
    return f'"prompt_ids":[{_IDS[0]}],"output_ids":[{_OUT[0]}],"logprobs":[{_LOGPROBS[0]!r}]'


def _tokens(rng: random.Random) -> str:
    prompt = [rng.randrange(4_096) for _ in range(rng.randrange(60, 200))]
    output = [rng.randrange(4_096) for _ in range(rng.randrange(8, 32))]
    logprobs = [-rng.expovariate(2.0) for _ in output]

    def listed(values: Iterator[str]) -> str:
        return f"[{','.join(values)}]"

    return (
        f'"prompt_ids":{listed(map(str, prompt))},"output_ids":{listed(map(str, output))},'
        f'"logprobs":{listed(map(repr, logprobs))}'
    )
