"""Settings refuse invalid values, prices are exact, and the factory lists the known engines."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline.agents.records import Usage
from loopline.workers.engines import (
    ModelSettings,
    Price,
    build_engine,
    cost_micro_dollars,
    engine_names,
)
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.protocol import EngineError

prices = st.decimals(min_value=0, max_value=1000, places=4, allow_nan=False)


def usage(prompt: int, cached: int, completion: int) -> Usage:
    return Usage(prompt=prompt, cached=cached, completion=completion, source="provider")


def test_a_million_tokens_cost_the_configured_price() -> None:
    price = Price(prompt=Decimal("2.5"), cached=Decimal("1.25"), completion=Decimal(10))
    assert cost_micro_dollars(usage(1_000_000, 0, 0), price) == 2_500_000
    assert cost_micro_dollars(usage(1_000_000, 1_000_000, 0), price) == 1_250_000
    assert cost_micro_dollars(usage(0, 0, 1_000_000), price) == 10_000_000


def test_cached_tokens_cost_the_prompt_price_by_default() -> None:
    assert cost_micro_dollars(usage(100, 60, 0), Price(prompt=Decimal(2))) == 200


def test_a_half_micro_dollar_is_rounded_up() -> None:
    price = Price(prompt=Decimal("0.15"))
    assert cost_micro_dollars(usage(10, 0, 0), price) == 2
    assert cost_micro_dollars(usage(3, 0, 0), price) == 0


def test_a_price_written_as_a_float_becomes_the_same_decimal() -> None:
    assert Price.model_validate({"prompt": 0.15}).prompt == Decimal("0.15")


@given(
    prompt=st.integers(0, 10**7),
    share=st.floats(0, 1),
    completion=st.integers(0, 10**7),
    prices=st.tuples(prices, prices, prices),
)
def test_the_cost_is_exact_to_half_a_micro_dollar(
    prompt: int, share: float, completion: int, prices: tuple[Decimal, Decimal, Decimal]
) -> None:
    cached = int(prompt * share)
    per_prompt, per_cached, per_completion = prices
    price = Price(prompt=per_prompt, cached=per_cached, completion=per_completion)
    exact = (
        (prompt - cached) * Fraction(per_prompt)
        + cached * Fraction(per_cached)
        + completion * Fraction(per_completion)
    )
    paid = cost_micro_dollars(usage(prompt, cached, completion), price)
    assert -Fraction(1, 2) < paid - exact <= Fraction(1, 2)


def test_more_cached_than_prompt_tokens_is_an_error() -> None:
    with pytest.raises(ValueError, match="9 cached tokens in a prompt of 3"):
        cost_micro_dollars(usage(3, 9, 0), Price())


@pytest.mark.parametrize(
    "wrong",
    [
        {"modell": "x"},
        {"model": ""},
        {"price": {"prompt": -1}},
        {"device": "gpu"},
        {"dtype": "int8"},
        {"max_tokens": 0},
        {"temperature": 9},
        {"scripted": {"faults": {"hang": 0.7, "rate_limited": 0.7}}},
        {"engine": "torch", "base_url": "http://localhost/v1"},
        {"engine": "torch", "quantization": "int3"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelSettings.model_validate({"engine": "scripted", "model": "m", **wrong})


@pytest.mark.parametrize(
    ("engine", "words"),
    [("llama_cpp", "a quantized GGUF file"), ("openai", "not in this process")],
)
def test_only_torch_quantizes_and_other_engines_suggest_an_alternative(
    engine: str, words: str
) -> None:
    assert ModelSettings(engine="torch", model="m", quantization="int4").quantization == "int4"
    with pytest.raises(ValidationError, match=words):
        ModelSettings(engine=engine, model="m", quantization="int8")


def test_every_setting_is_described() -> None:
    for model in (ModelSettings, Price, FaultPlan):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no docstring"


def test_the_error_for_an_unknown_engine_suggests_the_nearest() -> None:
    with pytest.raises(EngineError, match="did you mean 'scripted'") as caught:
        build_engine(ModelSettings(engine="scriptd", model="m"))
    assert caught.value.kind == "bad_request"


def test_another_package_adds_an_engine_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange_engine.py").write_text(
        "from loopline.workers.engines.scripted.engine import ScriptedEngine\n"
        "class Strange(ScriptedEngine):\n"
        "    pass\n"
    )
    info = tmp_path / "strange-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[loopline.engines]\nstrange = strange_engine:Strange\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        engine = build_engine(ModelSettings(engine="strange", model="m"))
        assert type(engine).__name__ == "Strange"
        assert {"openai", "scripted", "strange", "torch"} <= set(engine_names())
    finally:
        sys.modules.pop("strange_engine", None)


def test_a_zero_price_is_known_and_a_missing_one_is_not() -> None:
    assert Price(prompt=Decimal(0)).is_known
    assert not Price().is_known
    assert cost_micro_dollars(usage(100, 0, 50), Price()) == 0
    assert Price.model_validate_json(Price().model_dump_json()) == Price()


def test_how_much_to_think_is_a_setting_of_endpoints() -> None:
    with pytest.raises(ValidationError, match="reasoning_effort is for engine = 'openai'"):
        ModelSettings(engine="torch", model="m", reasoning_effort="low")
