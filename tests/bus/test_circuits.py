"""One breaker for all workers: one worker's failures count for all, and only one probes."""

from __future__ import annotations

import time

import pytest

from loopline.bus import Bus, circuits
from loopline.bus.circuits import Circuit, breaker_key, open_since_failures
from tests.bus.serving import until

ENDPOINT = "http://endpoint model"


def circuit(bus: Bus, *, failures: int = 2, seconds: float = 600) -> Circuit:
    return Circuit(bus, ENDPOINT, failures=failures, seconds=seconds)


async def opened(bus: Bus, *, probed: bool = False) -> None:
    """Open the circuit with two failures; with `probed`, its open time is over."""
    worker = circuit(bus)
    await worker.failed("1")
    await worker.failed("2")
    if probed:
        key = breaker_key(bus.keys, ENDPOINT)
        await bus.redis.hset(key, "until", "1")  # pyright: ignore


async def test_consecutive_failures_across_workers_open_the_circuit_for_all(bus: Bus) -> None:
    first, second, third = (circuit(bus) for _ in range(3))
    assert (await first.ask("a")).word == "closed"
    assert (await first.failed("a")).word == "closed"
    verdict = await second.failed("b")
    assert (verdict.word, verdict.failures) == ("open", 2)
    assert 590 < verdict.left <= 600
    assert (await third.ask("c")).word == "open"
    assert await open_since_failures(bus.redis, bus.keys, ENDPOINT) == 2


async def test_an_answer_between_two_failures_resets_the_count(bus: Bus) -> None:
    first, second = circuit(bus), circuit(bus)
    await first.failed("a")
    assert (await second.ask("b")).failures == 1
    await second.answered("b", forced=False)
    assert (await first.failed("c")).word == "closed"


async def test_a_single_probe_is_sent_and_its_answer_closes_the_circuit(bus: Bus) -> None:
    await opened(bus, probed=True)
    words = [(await circuit(bus).ask(token)).word for token in "abc"]
    assert words == ["probe", "open", "open"]
    assert (await circuit(bus).answered("b", forced=False)).word == "open"
    assert (await circuit(bus).answered("a", forced=False)).word == "closed"
    assert (await circuit(bus).ask("d")).word == "closed"
    assert await open_since_failures(bus.redis, bus.keys, ENDPOINT) is None


async def test_a_failed_probe_reopens_the_circuit_for_the_full_time(bus: Bus) -> None:
    await opened(bus, probed=True)
    assert (await circuit(bus).ask("a")).word == "probe"
    verdict = await circuit(bus).failed("a")
    assert verdict.word == "open"
    assert verdict.left > 590
    assert (await circuit(bus).ask("b")).word == "open"


async def test_a_late_answer_to_an_earlier_request_does_not_close_the_circuit(bus: Bus) -> None:
    await opened(bus)
    assert (await circuit(bus).answered("early", forced=False)).word == "open"
    assert (await circuit(bus).answered("sent all the same", forced=True)).word == "closed"


async def test_another_worker_probes_when_the_prober_dies(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuits, "PROBE_SECONDS", 0.05)
    await opened(bus, probed=True)
    assert (await circuit(bus).ask("dies")).word == "probe"

    async def probes() -> bool:
        return (await circuit(bus).ask("other")).word == "probe"

    await until(probes, "another worker probes")
    assert (await circuit(bus).renew("dies")).word == "open", "it has lost its turn"
    assert (await circuit(bus).answered("dies", forced=False)).word == "open"


async def test_an_unsent_probe_passes_to_another_request_at_once(bus: Bus) -> None:
    await opened(bus, probed=True)
    assert (await circuit(bus).ask("a")).word == "probe"
    await circuit(bus).release("a")
    assert (await circuit(bus).ask("b")).word == "probe"


async def test_a_server_clock_that_jumps_back_does_not_prolong_an_open_circuit(bus: Bus) -> None:
    await opened(bus)
    later = str(int((time.time() + 86_400) * 1000))
    key = breaker_key(bus.keys, ENDPOINT)
    await bus.redis.hset(key, mapping={"until": later})  # pyright: ignore
    assert (await circuit(bus).ask("a")).left <= 600
