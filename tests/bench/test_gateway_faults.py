"""Gateways are killed and frozen under a few clients, in a smaller version of `bench gateway-faults
--streams 1000`; and its checks detect incorrectly served clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from loopline.bench.proofs.faults.checker import check
from loopline.bench.proofs.faults.evidence import Evidence
from loopline.bench.proofs.gateway_faults.caller import Receipt
from loopline.bench.proofs.gateway_faults.driver import AttackSettings, Result, attack
from loopline.bench.proofs.gateway_faults.proof import violations_of

EMPTY = Evidence(
    seed=1, accepted=[], history=[], runs={}, stored=[], stored_calls=[], streams={}, delayed={},
    active=[], dead_letters=[], keys_without_ttl=[], live_consumers_before_drain=[],
    live_workers=[],
)  # fmt: skip


def rules(receipt: Receipt, answer_counts: dict[str, int] | None = None) -> set[str]:
    result = Result(
        EMPTY, [receipt], {receipt.key: "1 + 1 = 2"}, answer_counts or {}, Counter(), 1.0
    )
    return {violation.rule for violation in violations_of(result)}


def read(text: str, *ids: str) -> Receipt:
    return Receipt("key", "1 + 1?", 0, "llm", True, text, list(ids), {"chatcmpl-x"}, complete=True)


def test_a_text_with_a_hole_is_a_gap() -> None:
    assert "gaps" in rules(read("1 + = 2", "1-0/1"))


def test_a_stream_without_an_end_is_a_gap() -> None:
    receipt = read("1 + 1", "1-0/1")
    receipt.complete = False
    assert "gaps" in rules(receipt)


def test_a_duplicate_event_is_a_repeat() -> None:
    assert "repeats" in rules(read("1 + 1 = 2", "1-0/1", "2-0/1", "1-0/1"))


def test_a_question_answered_twice_by_the_endpoint_is_a_double_call() -> None:
    assert "double_calls" in rules(read("1 + 1 = 2", "1-0/1"), {"hash": 2})


def test_an_answer_missing_from_the_store_is_a_mismatch() -> None:
    assert rules(read("1 + 1 = 2", "1-0/1")) == {"journal_mismatches"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_streams_and_calls_survive_kills_and_freezes(tmp_path: Path) -> None:
    settings = AttackSettings(streams=50, seed=20_261_126)
    result = asyncio.run(attack(tmp_path, settings, print))
    assert [str(violation) for violation in violations_of(result)] == []
    assert [str(violation) for violation in check(result.evidence)] == []
    assert len(result.evidence.stored) == 100
    assert result.injected.total() >= 3
