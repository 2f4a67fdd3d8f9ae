"""`bench effects`: tool workers die and pause at every line between a call and its reply, and a
file counts the calls' effects on the world; also for a plain queue and LangGraph's durable
execution."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from loopline.agents.tools.effects import Effect
from loopline.bench.proofs.effects import graph_peer, ours, queue_peer
from loopline.bench.proofs.effects.counter import Effects
from loopline.bench.proofs.effects.ours import EFFECTS, Played
from loopline.bench.proofs.effects.processes import Interruptions
from loopline.bench.proofs.harness import Options, Progress, Proof, Seed, random_seed
from loopline.bench.proofs.outcome import Measurement, Outcome, Violation, measured
from loopline.bus import BusSettings
from loopline.testing import running_redis
from loopline.workers.installation import install_hint

LEASE_SECONDS = 0.6
PATIENT = 100
"""Deliveries of a call before it is given up: here, dying workers are not a failure of the call."""


class EffectsOptions(Options):
    """One third of the calls each go to tools with the effect `keyed`, `once` and `none`."""

    calls: int = Field(default=10_000, ge=30, le=1_000_000)
    """Calls of our own tools."""
    peer_calls: int = Field(default=200, ge=0, le=10_000)
    """Calls of each peer; 0 skips the peers. A peer takes some ten seconds to retry a call whose
    worker died."""
    seed: Seed = Field(default_factory=random_seed, ge=0)
    """Seed of the lines, the moments, and the lengths of pauses."""


def run(options: EffectsOptions, progress: Progress) -> Outcome:
    """Run, and compare the callers' answers with the file."""
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="bench-effects-") as scratch:
        folder = Path(scratch)
        with running_redis(folder / "redis", listen="tcp") as server:
            settings = BusSettings(
                redis_url=server.url, lease_seconds=LEASE_SECONDS, sweep_seconds=0.1,
                block_seconds=0.1, retry_base_seconds=0.02, max_attempts=PATIENT,
            )  # fmt: skip
            calls = options.calls // len(EFFECTS)
            played, done = asyncio.run(ours.play(settings, folder, calls, rng, progress.say))
            progress.outcome = lambda: _outcome(options, played, done, {}, [])
            peers, missing = _play_peers(options, server.url, folder, rng, progress)
    return _outcome(options, played, done, peers, missing)


def _play_peers(
    options: EffectsOptions, url: str, folder: Path, rng: random.Random, progress: Progress
) -> tuple[dict[str, tuple[Effects, Interruptions]], list[str]]:
    """Run the peers; return their effects and interruptions by name, and the reasons why others did
    not run."""
    peers: dict[str, tuple[Effects, Interruptions]] = {}
    missing: list[str] = []
    if not options.peer_calls:
        return peers, ["the peers were left out by --peer-calls 0"]
    for name in ("queue", "graph"):
        (folder / name).mkdir()
    progress.say("a plain queue (arq) does the same…")
    play = queue_peer.play(url, folder / "queue", options.peer_calls, rng)
    peers["a plain queue (arq)"] = asyncio.run(play)
    if not graph_peer.INSTALLED:
        missing.append(f"LangGraph is not installed: {install_hint('peers')}")
        return peers, missing
    progress.say("LangGraph does the same…")
    play = graph_peer.play(folder / "graph", options.peer_calls, rng)
    peers['LangGraph (durability="sync")'] = asyncio.run(play)
    return peers, missing


def _outcome(
    options: EffectsOptions,
    played: Mapping[Effect, Played],
    done: Interruptions,
    peers: Mapping[str, tuple[Effects, Interruptions]],
    missing: list[str],
) -> Outcome:
    keyed, once, none = played["keyed"], played["once"], played["none"]
    figures = [
        measured("keyed_duplicates", keyed.effects.repeated_keys, better="lower", bar=0),
        measured("once_duplicates", once.effects.repeated, better="lower", bar=0),
        measured("unlisted_unknowns", once.unlisted, better="lower", bar=0),
    ]
    if peers:
        repeated = sum(effects.repeated for effects, _ in peers.values())
        figures.append(measured("peer_duplicates", repeated))
    figures += _rows({effect: (part.effects, done) for effect, part in played.items()})
    figures.append(
        measured("unknown", len(once.unknown), subject="effect once", group="calls and effects")
    )
    figures += _rows(peers)
    violations = [
        Violation("every answer is true", f"{part.wrong} wrong answers to calls {effect}")
        for effect, part in (("keyed", keyed), ("once", once), ("none", none))
        if part.wrong
    ]
    outcome = Outcome(
        about=(
            f"{options.calls:,} calls, {ours.WORKERS} workers; {done.kills} kills and {done.stops} "
            f"pauses, at {done.attacked} of {done.lines} lines; seed {options.seed}"
        ),
        measurements=figures,
        notes=missing,
    )
    if not done.kills or not done.stops:
        why = "the calls ended before a worker was killed and one paused: give more --calls"
        violations.append(Violation("workers were attacked", why))
    outcome.violate(violations)
    return outcome


def _rows(parts: Mapping[str, tuple[Effects, Interruptions]]) -> list[Measurement]:
    rows: list[Measurement] = []
    for name, (effects, done) in parts.items():
        subject = f"effect {name}" if name in EFFECTS else name
        for column, value in (
            ("calls with an effect", len(effects.times)),
            ("repeated effects", effects.repeated),
            ("kills", done.kills),
            ("pauses", done.stops),
        ):
            rows.append(measured(column, value, subject=subject, group="calls and effects"))
    return rows


PROOF = Proof(
    name="effects",
    title="effects of tools, while workers die and pause",
    options=EffectsOptions,
    minutes=lambda options: options.calls / 1_800 + (1.5 if options.peer_calls else 0),
    run=run,
)
