"""A benchmark as a job of the running deployment: it outlives the terminal that asked for it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from loopline.bench.datasets.gsm8k import VARIABLE
from loopline.bench.errors import UsageError
from loopline.bench.session import Asked

_IN_THE_DATA_FOLDER = ("gsm8k", "aime24", "aime25")
"""Data sets that are looked for in the folder of the environment. One of a user's package need not
take that folder by --data."""


def enqueue(asked: Asked) -> str:
    """Put the benchmark on the queue, say where its results will be; the job's id."""
    from loopline.runtime.deployment import find
    from loopline.runtime.job_requests import JobRequest, require_allowed
    from loopline.runtime.jobs import enqueue as put
    from loopline.runtime.state import StateDirectory

    if asked.redis_url is not None:
        raise UsageError(
            "--queue and --redis-url exclude each other: a job runs beside its own deployment, "
            "and a URL on the queue would show its password"
        )
    settings = find().settings
    output = asked.output or Path("results") / (
        f"{asked.benchmark.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    if (output / "manifest.json").exists():
        raise UsageError(
            f"{output} already holds a benchmark; go on with it by `bench resume {output}`, or "
            "give another --output"
        )
    request = JobRequest(
        program="bench",
        argv=argv_of(asked, output.absolute()),
        cwd=str(Path.cwd()),
        output=str(output.absolute()),
    )
    require_allowed(request, StateDirectory.from_environment())
    job = asyncio.run(put(settings, request))
    print(f"job {job}: {output}")
    print("follow it with: runtime jobs")
    return job


def argv_of(asked: Asked, output: Path) -> list[str]:
    """The command line of the job. It says outright what this terminal's environment says."""
    request = asked.request
    known = asked.benchmark.name in ("gsm8k", "wordproblems")
    argv = [
        *([] if known else ["run"]),
        asked.benchmark.name,
        *("--arms", ",".join(arm.name for arm in asked.arms)),
        *("--seed", str(request.seed)),
        *("--split", request.split),
        *("--concurrency", str(asked.concurrency)),
        *("--calculator", "on" if asked.calculator else "off"),
        *("--run-seconds", str(asked.run_seconds)),
        *("--output", str(output)),
        "--json",
    ]
    if request.samples is not None:
        argv += ["--samples", str(request.samples)]
    named = os.environ.get(VARIABLE) if asked.benchmark.name in _IN_THE_DATA_FOLDER else None
    data = request.data or named
    if data:
        argv += ["--data", str(Path(data).absolute())]
    if asked.budget_dollars is not None:
        argv += ["--budget-usd", str(asked.budget_dollars)]
    if asked.compat is not None:
        argv += ["--compat", asked.compat]
    if asked.profile is not None:
        argv += ["--profile", asked.profile]
    return argv
