"""`bench vllm-faults`: requests under kill -9 of vLLM servers and gpu workers, while versions of an
adapter follow one another.

Every answer is checked against the version that it states: the torch engine scores its tokens with
the weights that were published as that version.
"""

from __future__ import annotations

import asyncio
import random
import socket
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field

from loopline.agents.records import Call, Message, SamplingParams
from loopline.bench.errors import UsageError
from loopline.bench.proofs.engine.models import prepare, require
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Outcome, Violation, measured
from loopline.bench.proofs.soak.weights import write_lora
from loopline.bench.proofs.vllm_faults.processes import POOL, Processes
from loopline.bench.statistics import quantile
from loopline.bus import Admission, Bus, BusSettings, Envelope, Inbox, RequestError, policies, tasks
from loopline.testing import running_redis
from loopline.testing.vllm_double import write_program
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.torch.engine import TorchEngine
from loopline.workers.engines.vllm.managed import PYTHON_VARIABLE, find_python
from loopline.workers.messages import CompletionPayload, calls, inference_stream, registry

POLICY = f"{POOL}/caller"
MODEL = "random-micro"
TIMEOUT = 600.0
SAME = 1e-2
"""Nats per token: far below the effect of other weights, and above that of rounding."""
TRIES = 30
"""Tries of a request that fails with a temporary error; steps are retried in the same way."""


class VllmFaultsOptions(Options):
    """Two gpu workers share the servers. It fails if a request gets no answer, or an answer whose
    tokens do not belong to the version that it states."""

    server: Literal["auto", "vllm", "double"] = "auto"
    """Real vLLM servers, or their double in this project's tests; auto uses vLLM if installed."""
    servers: int = Field(default=2, ge=1, le=8)
    """Number of the pool's servers."""
    requests: int = Field(default=2000, ge=10, le=1_000_000)
    """Requests, half of them streamed."""
    versions: int = Field(default=50, ge=1, le=1000)
    """Versions of the adapter that are published during the requests."""
    kills: int = Field(default=10, ge=0, le=1000)
    """Processes that are killed during the requests, servers and workers in turn."""
    concurrency: int = Field(default=16, ge=1, le=256)
    """Requests in flight."""
    seed: Seed = Field(default_factory=random_seed)
    """Seed of the questions, and of the choice of killed processes."""

    @property
    def python(self) -> Path | None:
        """Python of vLLM; None for the double. Raises `UsageError`."""
        python = find_python(ModelSettings(engine="vllm", model=MODEL))
        if python.is_file() and self.server != "double":
            return python
        if self.server == "vllm":
            raise UsageError(f"no vLLM at {python}; run `make vllm` or set {PYTHON_VARIABLE}")
        return None


@dataclass
class Books:
    """Calls that were made, and their answers."""

    sent: int = 0
    answers: list[Call] = field(default_factory=list[Call])
    seconds: list[float] = field(default_factory=list[float])
    lost: list[str] = field(default_factory=list[str])
    again: Counter[str] = field(default_factory=Counter[str])
    """Temporary errors after which a request was sent again."""
    published: int = 0
    late: list[str] = field(default_factory=list[str])
    """Answers that state a version that was never published."""


async def _play(
    options: VllmFaultsOptions,
    processes: Processes,
    adapters: list[Path],
    books: Books,
    progress: Progress,
) -> None:
    rng = random.Random(options.seed)
    async with Bus(processes.bus, registry()) as bus, Inbox(bus) as inbox:

        async def until(due: Callable[[], bool]) -> None:
            while not due():  # noqa: ASYNC110 - other tasks add to these counts
                await asyncio.sleep(0.02)

        async def publish() -> None:
            """Publish the versions in turn, each after its share of the requests was sent."""
            for number, adapter in enumerate(adapters[1:], start=1):
                share = number * options.requests / len(adapters)
                await until(lambda share=share: books.sent >= share)
                await policies.publish(bus, POLICY, str(adapter))
                books.published += 1

        async def kill() -> None:
            for number in range(options.kills):
                share = (number + 1) * options.requests / (options.kills + 1)
                await until(lambda share=share: len(books.answers) + len(books.lost) >= share)
                progress.say(f"{len(books.answers)} answers; kill {number + 1}")
                if number % 2 == 0:
                    await processes.kill_server(rng.randrange(len(processes.ports)))
                else:
                    await processes.kill_worker(rng.randrange(2))

        async def ask_on() -> None:
            while books.sent < options.requests:
                books.sent += 1
                await _ask(bus, inbox, books, books.sent)

        # One that fails ends the others: they would wait for counts that no longer grow.
        running = [
            asyncio.create_task(work()) for work in (publish, kill, *[ask_on] * options.concurrency)
        ]
        try:
            await asyncio.gather(*running)
        finally:
            await tasks.end(running)


async def _ask(bus: Bus, inbox: Inbox, books: Books, number: int) -> None:
    """Send one request, in a separate run; repeat it after a temporary error."""
    run_id, began = str(uuid.uuid4()), time.monotonic()
    deadline = time.time() + TIMEOUT
    await bus.admit(Admission(run_id, b"{}", deadline, ()))
    payload = CompletionPayload(
        agent="caller", pool=POOL, policy=POLICY,
        messages=(Message(role="user", content=f"What is {number % 97} * 7 + 5?"),),
        sampling=SamplingParams(temperature=1.0, max_tokens=16 + number % 17),
        seed=number, stream=number % 2 == 0,
    )  # fmt: skip
    why = ""
    for turn in range(TRIES):
        envelope = Envelope(
            type="completion", run_id=run_id, turn=0, branch=0, deadline=deadline,
            reply_key=f"{run_id}/0.0/{turn}", payload=payload.model_dump(mode="json"),
        )  # fmt: skip
        try:
            (call,) = calls.validate_json(await inbox.request(inference_stream(POOL), envelope))
        except RequestError as error:
            why = str(error)
            if not error.retryable:
                break
            books.again[why[:80]] += 1
            await asyncio.sleep(1.0)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request has no answer
            why = f"{type(error).__name__}: {error}"
            break
        else:
            if not 1 <= call.policy.version <= books.published:
                books.late.append(f"{run_id}: version {call.policy.version}")
            books.answers.append(call)
            books.seconds.append(time.monotonic() - began)
            await bus.end_run(run_id, "answered", "")
            return
    books.lost.append(f"{run_id}: {why}")


async def _wrong_answers(model: Path, adapters: list[Path], answers: list[Call]) -> list[str]:
    """Return the answers whose log-probabilities do not match the version that they state."""
    engine = TorchEngine(ModelSettings(engine="torch", model=str(model), threads=1))
    await engine.start()
    wrong: list[str] = []
    try:
        for version, adapter in enumerate(adapters, start=1):
            await engine.load_adapter("caller", str(adapter), version)
            for call in (call for call in answers if call.policy.version == version):
                scores = await engine.score([*call.prompt_ids, *call.output_ids], "caller")
                pairs = zip(scores[len(call.prompt_ids) - 1 :], call.logprobs, strict=True)
                difference = max(abs(score - logprob) for score, logprob in pairs)
                if difference > SAME:
                    wrong.append(f"{call.id}: version {version}, off by {difference:.2g}")
    finally:
        await engine.close()
    return wrong


def run(options: VllmFaultsOptions, progress: Progress) -> Outcome:
    """Attack, then check every answer."""
    books, wrong = Books(), list[str]()
    kills: dict[str, int] = {}
    python = options.python

    def outcome() -> Outcome:
        answer_count = len(books.answers)
        result = Outcome(
            about=f"{MODEL}, {options.servers} servers ({'vLLM' if python else 'the double'}), two "
            f"gpu workers, {options.concurrency} requests in flight, half of them streamed.",
            measurements=[
                measured("answered", float(answer_count), bar=float(books.sent), better="higher"),
                measured("wrong_version", float(len(wrong)), bar=0.0, better="lower"),
                measured("versions", float(books.published)),
                measured("answer p50", quantile(books.seconds, 0.5), "s", better="lower"),
                measured("answer p99", quantile(books.seconds, 0.99), "s", better="lower"),
            ],
            facts={"kills": kills, "asked_again": dict(books.again), "seed": options.seed,
                   "versions_that_answered": len({c.policy.version for c in books.answers})},
        )  # fmt: skip
        for rule, lines in (
            ("lost", books.lost), ("wrong version", wrong), ("not published", books.late),
        ):  # fmt: skip
            result.violate([Violation(rule, line) for line in lines])
        return result

    progress.outcome = outcome
    with tempfile.TemporaryDirectory(prefix="bench-vllm-faults-") as scratch:
        folder = Path(scratch)
        model = prepare(MODEL, "bf16", folder, with_gguf=False).folder
        adapters = [
            write_lora(model, folder / f"adapter-{version}", options.seed + version)
            for version in range(options.versions)
        ]
        with running_redis(folder / "redis", persistence="none", listen="tcp") as redis:
            processes = Processes(
                python or write_program(folder), model,
                BusSettings(redis_url=redis.url, lease_seconds=3.0), folder,
                [_free_port() for _ in range(options.servers)], options.concurrency,
            )  # fmt: skip
            kills = processes.kills
            try:
                asyncio.run(_attack(options, processes, adapters, books, progress))
            finally:
                processes.end()
        progress.say("every answer is scored under the weights that it names…")
        wrong += asyncio.run(_wrong_answers(model, adapters, books.answers))
    return outcome()


async def _attack(
    options: VllmFaultsOptions,
    processes: Processes,
    adapters: list[Path],
    books: Books,
    progress: Progress,
) -> None:
    async with Bus(processes.bus, registry()) as bus:
        await policies.publish(bus, POLICY, str(adapters[0]))
    books.published = 1
    await processes.start()
    await _play(options, processes, adapters, books, progress)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check(options: VllmFaultsOptions) -> None:
    """Raises `UsageError` for options that can't be measured here."""
    require(MODEL, "bf16")
    _ = options.python


PROOF = Proof(
    name="vllm-faults",
    title="requests under kill -9 of vLLM servers and gpu workers, while an adapter changes",
    options=VllmFaultsOptions,
    minutes=lambda options: options.requests / 400 + options.kills * 0.5,
    run=run,
    check=check,
)
