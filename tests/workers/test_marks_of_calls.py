"""The line of a mark, which is written without the record that it represents."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import orjson
from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.records import PolicyRef
from loopline.agents.usage import UsageEntry
from loopline.bus import Delivery, Envelope
from loopline.workers.engines.protocol import Sending
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.paid_calls import (
    DIED,
    PaidCalls,
    Terms,
    _Call,  # pyright: ignore[reportPrivateUsage]
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TOKENS = st.integers(0, 10**9)
PRICES = st.none() | st.decimals(0, 1000, places=3)


def delivery_of(envelope: Envelope) -> Delivery:
    """A delivery with the fields that a mark's line reads."""
    call_name = "worker-1/1/5-0/{}".format
    return cast(Delivery, cast(Any, SimpleNamespace(envelope=envelope, call_name=call_name)))


@given(
    run_id=NAMES, key=NAMES, agent=NAMES, pool=NAMES, adapter=st.none() | NAMES,
    turn=st.integers(0, 10_000), branch=st.integers(0, 10_000), version=st.integers(0, 10_000),
    prompt=TOKENS, completion=TOKENS, prices=st.tuples(PRICES, PRICES),
    at=st.floats(0, 1e11), hedge=st.sampled_from(["", "first", "second"]),
)  # fmt: skip
def test_a_mark_s_ledger_line_equals_its_record(
    run_id: str, key: str, agent: str, pool: str, adapter: str | None, turn: int, branch: int,
    version: int, prompt: int, completion: int, prices: tuple[Decimal | None, Decimal | None],
    at: float, hedge: Any,
) -> None:  # fmt: skip
    envelope = Envelope(
        type="completion", run_id=run_id, turn=turn, branch=branch, deadline=1.0, reply_key=key
    )
    price = dict(zip(("prompt", "completion"), prices, strict=True))
    settings = ModelSettings.model_validate({"engine": "openai", "model": "m", "price": price})
    paid = PaidCalls(delivery_of(envelope), agent)
    policy = PolicyRef(name=pool, base="m", adapter=adapter, version=version)
    terms = Terms(policy, settings, hedge)
    call = _Call(1, terms, Sending(number=1, prompt=prompt, completion=completion), at)
    line = paid.line_of_mark(call)
    assert UsageEntry.model_validate_json(line) == paid.unknown_entry(call, DIED)
    # The scripts read it as text: every field is present, in the record's order.
    assert list(UsageEntry.model_validate_json(line).model_dump(mode="json")) == list(
        orjson.loads(line)
    )
