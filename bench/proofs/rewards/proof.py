"""`bench rewards`: three programs post the same rewards; each of them and the recorder are killed
again and again, and at the end the store must have each reward once."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from loopline.agents.rewards import Reward
from loopline.bench.errors import BenchError
from loopline.bench.proofs.harness import Options, Progress, Proof, random_seed
from loopline.bench.proofs.outcome import Outcome, measured
from loopline.bench.proofs.rewards.poster import reward_of
from loopline.bus import Bus, BusSettings
from loopline.testing import end_workers, running_redis, start_worker
from loopline.workers.process_lifetime import dies_with_parent
from loopline.workers.settings import RecorderSettings
from loopline.workers.store.rewards import read_rewards

POSTERS = 3
DRAIN_SECONDS = 120.0
_LOOK_SECONDS = 0.05


class RewardsOptions(Options):
    """Every reward is sent at least three times, and must be counted once."""

    rewards: int = Field(default=10_000, ge=POSTERS, le=1_000_000)
    """Number of different rewards."""
    kills: int = Field(default=5, ge=0, le=1_000)
    """Kills of each program that posts; each time the recorder is killed, too."""
    seed: int = Field(default_factory=random_seed, ge=0)
    """Seed of the times of the kills."""


@dataclass(frozen=True)
class Counted:
    """Content of the store at the end."""

    counted: int
    """Number of rewards, each counted once by its id."""
    rows: int
    """Rows in the files."""
    wrong: int
    """Rewards that are missing, or differ from what was posted."""
    sent: int
    """Posts that were answered, including repeated ones."""
    kills: int


async def play(
    settings: BusSettings,
    folder: Path,
    options: RewardsOptions,
    say: Callable[[str], None] = lambda text: None,
) -> Counted:
    """Post, kill, record, count. Raises `BenchError` if a program fails by itself, or the recorder
    leaves rewards on the bus."""
    store = folder / "store"
    recorder = _Recorder(settings, folder, store)
    rng = random.Random(options.seed)
    try:
        results = await asyncio.gather(
            *(
                _post(settings, options, place * options.rewards // POSTERS, rng, recorder)
                for place in range(POSTERS)
            )
        )
        say("all rewards are posted; the recorder writes the rest…")
        await _drained(settings)
    finally:
        recorder.end()
    rewards = read_rewards(store)
    by_id: dict[str, Reward] = {item.reward.id: item.reward for item in rewards.rewards}
    wanted = [reward_of(number) for number in range(options.rewards)]
    return Counted(
        counted=len(rewards.rewards),
        rows=_rows(store),
        wrong=sum(by_id.get(reward.id) != reward for reward in wanted),
        sent=sum(sent for sent, _ in results),
        kills=sum(kills for _, kills in results) + recorder.kills,
    )


class _Recorder:
    """The recorder's process, and its successors after kills."""

    def __init__(self, settings: BusSettings, folder: Path, store: Path) -> None:
        self._settings = RecorderSettings(
            name="recorder", bus=settings, store=store, linger_seconds=0.2
        )
        self._folder = folder
        self._process = start_worker(self._settings, folder)
        self.kills = 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.kills += 1
        self._process = start_worker(self._settings, self._folder)

    def end(self) -> None:
        end_workers([self._process])


async def _post(
    settings: BusSettings,
    options: RewardsOptions,
    first: int,
    rng: random.Random,
    recorder: _Recorder,
) -> tuple[int, int]:
    """Run one program until it was killed as often as requested, and then to its end; return the
    posts that it reported, and the kills."""
    sent = 0
    for attempt in range(options.kills + 1):
        last_one = attempt == options.kills
        limit = options.rewards if last_one else rng.randrange(options.rewards)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loopline.bench.proofs.rewards.poster",
            settings.model_dump_json(), str(options.rewards), str(first),
            stdout=subprocess.PIPE, preexec_fn=dies_with_parent(signal.SIGKILL),
        )  # fmt: skip
        assert process.stdout is not None
        posted = 0
        while line := await process.stdout.readline():
            posted = int(line)
            if posted >= limit and not last_one:
                process.kill()  # in the middle of the next posts
                recorder.kill()
                break
        sent += posted
        code = await process.wait()
        if last_one and code != 0:
            raise BenchError(f"a program that posts rewards exited with code {code}")
    return sent, options.kills


async def _drained(settings: BusSettings) -> None:
    """Wait until the recorder has acknowledged all rewards. Raises `BenchError`."""
    waiting: list[int] = []
    async with Bus(settings) as bus:
        for _ in range(int(DRAIN_SECONDS / _LOOK_SECONDS)):
            waiting = [int(await bus.redis.xlen(shard.rewards)) for shard in bus.keys.all_shards()]
            if not any(waiting):
                return
            await asyncio.sleep(_LOOK_SECONDS)
    raise BenchError(f"after {DRAIN_SECONDS:g} s {sum(waiting)} rewards are not recorded")


def _rows(store: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in (store / "rewards").glob("*.parquet"))


def run(options: RewardsOptions, progress: Progress) -> Outcome:
    """Raises `BenchError` like `play`."""
    with tempfile.TemporaryDirectory(prefix="bench-rewards-") as scratch:
        folder = Path(scratch)
        with running_redis(folder / "redis", listen="tcp") as server:
            settings = BusSettings(redis_url=server.url, lease_seconds=1.0, shards=2)
            result = asyncio.run(play(settings, folder, options, progress.say))
    count = options.rewards
    return Outcome(
        about=f"{count:,} rewards, posted by {POSTERS} programs at once; seed {options.seed}",
        measurements=[
            measured("counted", result.counted, better="higher", bar=count),
            measured("rows in the store", result.rows, better="lower", bar=count),
            measured("missing or wrong", result.wrong, better="lower", bar=0),
            measured("posts answered", result.sent),
            measured("kill -9", result.kills),
        ],
    )


PROOF = Proof(
    name="rewards",
    title="posted rewards are counted once under kill -9",
    options=RewardsOptions,
    minutes=lambda options: options.rewards * (options.kills + 2) / 35_000,
    run=run,
)
