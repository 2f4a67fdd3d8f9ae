"""Numbers with units: what is the same quantity, and what isn't."""

from __future__ import annotations

import pytest

from loopline.bench.checkers import Scorer
from loopline.workers.judging.written_numbers import quantities_agree, written_numbers_agree

SAME = (
    (r"5 m s^{-1}", "5 m/s"),
    (r"5\ \mathrm{m\,s^{-1}}", "5 m/s"),
    (r"$5\text{ m/s}$", "5 m s⁻¹"),
    ("18 km/h", "5 m/s"),
    ("9.8 m/s²", "9.8 m/s^2"),
    ("9.8 m/s2", "9.8 meters per second squared"),
    (r"2 \mathrm{~N} \cdot \mathrm{m}", "2 J"),
    (r"3 \times 10^{-3} N·m", "3 × 10^{-3} J"),
    ("5 kg·m/s", "5 N s"),
    ("5 kg/m^3", r"5 kg m^{-3}"),
    (r"4 \mu\mathrm{m}", "4 µm"),
    ("4 μm", "4000 nm"),
    ("5000 kHz", "5 MHz"),
    ("40 ms", "0.04 s"),
    ("250 mL", "0.25 liters"),
    ("3 L", "3000 cm^3"),
    ("10 Ω", r"10 \Omega"),
    ("1 kWh", "3.6 MJ"),
    ("20 °C", r"20^\circ \mathrm{C}"),
    (r"30^{\circ}", "30 degrees"),
)
DIFFERENT = (
    ("5 µm", "5 m"),
    ("5 MHz", "5 kHz"),
    ("12 MW", "12 mW"),
    ("5 mA", "5 A"),
    ("40 ms", "40 m"),
    ("4 Nm", "4 nm"),
    ("9.8 m/s^2", "9.8 m/s"),
    ("5 m s^{-1}", "5 m s"),
    ("10 kΩ", "10 Ω"),
    ("80 kcal", "80 cal"),
)


@pytest.fixture(scope="module", name="scorer")
def started_scorer() -> Scorer:
    return Scorer()


@pytest.mark.parametrize(("answer", "gold"), [*SAME, *(pair[::-1] for pair in SAME)])
def test_one_quantity_may_be_written_in_several_units(
    answer: str, gold: str, scorer: Scorer
) -> None:
    assert written_numbers_agree(answer, gold)
    assert scorer.score(rf"So it is \boxed{{{answer}}}.", gold).verdicts.numeric


@pytest.mark.parametrize(("answer", "gold"), [*DIFFERENT, *(pair[::-1] for pair in DIFFERENT)])
def test_quantities_in_other_units_differ(answer: str, gold: str, scorer: Scorer) -> None:
    assert not written_numbers_agree(answer, gold)
    assert not scorer.score(rf"So it is \boxed{{{answer}}}.", gold).verdicts.numeric


@pytest.mark.parametrize(
    "text", ["5", "5 apples", "2x m", "m/s", "5 m x", "about 5 m", "5 m or 6 m", "1 m 30 cm"]
)
def test_a_text_is_a_quantity_only_if_all_its_words_are_units(text: str) -> None:
    assert quantities_agree(text, "5 m") is None
