"""What each method trains, on which rows, in which order, and with how much compute."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline.trainers.data.token_rows import TokenRow
from loopline.trainers.glpft.batches import GROUP, LENGTH_STEP, batch_of, batches
from loopline.trainers.glpft.settings import COPYING_TOKENS, GlpftSettings, Weights
from loopline.trainers.glpft.stage_training import rate_factor
from loopline.trainers.glpft.stages import (
    EVEN_SHARES,
    METHODS,
    ROLES,
    Method,
    is_in_part,
    is_validation,
    stages_of,
)

SHARES = st.fixed_dictionaries({name: st.floats(0.01, 100) for name in ("backbone", *ROLES)})


@given(SHARES, st.sampled_from(METHODS), st.sampled_from((0.0, 0.2)))
def test_every_method_spends_the_whole_compute(
    shares: dict[str, float], method: Method, copying: float
) -> None:
    stages = stages_of(method, shares, copying=copying)
    assert sum(stage.share for stage in stages) == pytest.approx(1)


@pytest.mark.parametrize("method", METHODS)
def test_random_weights_first_learn_to_copy(method: Method) -> None:
    first, *others = stages_of(method, EVEN_SHARES, copying=0.2)
    assert (first.name, first.share, first.begins_from) == ("copying", 0.2, None)
    for stage, usual in zip(others, stages_of(method, EVEN_SHARES), strict=True):
        assert stage.begins_from == (usual.begins_from or "copying")
        assert stage.is_first == usual.is_first
        assert stage.share == pytest.approx(0.8 * usual.share)


def test_the_methods_train_what_the_paper_compares() -> None:
    trained = {
        method: [(stage.name, stage.sets, stage.begins_from) for stage in stages]
        for method in METHODS
        if (stages := stages_of(method, EVEN_SHARES))
    }
    roles = [(role, (role,), None) for role in ROLES]
    reused = [(role, (role,), "backbone") for role in ROLES]
    assert trained == {
        "glpft": [("backbone", ("global_steps",), None), *reused],
        "no-reuse": [("backbone", ("global_steps",), None), *reused],
        "one-stage": roles,
        "multitask": [("multitask", ROLES, None)],
        "single": [("single", ("global_steps",), None)],
    }


@given(st.text())
def test_without_reuse_the_two_stages_share_no_instruction(instruction: str) -> None:
    assert is_in_part(instruction, "first") != is_in_part(instruction, "second")
    assert is_in_part(instruction, "all")
    backbone, *roles = stages_of("no-reuse", EVEN_SHARES)
    assert (backbone.part, {role.part for role in roles}) == ("first", {"second"})
    assert {stage.part for stage in stages_of("glpft", EVEN_SHARES)} == {"all"}


def test_about_the_requested_share_of_instructions_is_held_out() -> None:
    kept_out = sum(is_validation(str(number), 0.1) for number in range(2_000))
    assert 150 < kept_out < 250
    assert not any(is_validation(str(number), 0.0) for number in range(100))


@pytest.mark.parametrize(
    ("weights", "backbone", "role"),
    [("full", 5e-5, 1e-5), ("lora", 5e-4, 1e-4), ("lora-roles", 5e-5, 1e-4)],
)
def test_a_base_is_trained_at_the_published_rates_and_an_adapter_at_ten_times_those(
    weights: Weights, backbone: float, role: float
) -> None:
    glpft_settings = GlpftSettings(data_sha256="", base="somewhere", weights=weights)
    assert glpft_settings.schedule("backbone").learning_rate == pytest.approx(backbone)
    assert glpft_settings.schedule("planner").learning_rate == pytest.approx(role)
    assert (
        glpft_settings.schedule("multitask").warmup
        == glpft_settings.schedule("backbone").warmup
        == 0.4
    )


def test_every_stage_that_starts_from_random_weights_uses_the_backbone_s_schedule() -> None:
    """Otherwise a baseline would be trained at the rates that finish a backbone."""
    glpft_settings = GlpftSettings(data_sha256="")
    assert glpft_settings.schedule("planner", begins=True) == glpft_settings.schedule(
        "backbone", begins=True
    )
    assert (
        glpft_settings.schedule("planner").prompts
        == 0
        < glpft_settings.schedule("backbone").prompts
    )
    on_base = GlpftSettings(data_sha256="", base="somewhere")
    assert on_base.schedule("planner", begins=True) == on_base.schedule("planner")


def test_a_micro_base_keeps_its_learning_rates_and_skips_the_copying_stage() -> None:
    random = GlpftSettings(data_sha256="")
    further = GlpftSettings(data_sha256="", base="somewhere", schedules="micro")
    for stage in ("multitask", "planner"):
        assert further.schedule(stage) == random.schedule(stage)
    assert further.copying_share(100_000) == 0


def test_the_copying_stage_takes_small_steps_at_a_constant_rate() -> None:
    copying = GlpftSettings(data_sha256="").schedule("copying", begins=True)
    assert copying.batch == 8
    assert [
        rate_factor(progress, copying.warmup, copying.lowest) for progress in (0.05, 0.5, 1)
    ] == [1] * 3


def test_the_copying_stage_takes_at_most_a_fifth_and_a_bounded_number_of_tokens() -> None:
    glpft_settings = GlpftSettings(data_sha256="")
    assert glpft_settings.copying_share(100_000) == 0.2
    assert glpft_settings.copying_share(100_000_000) * 100_000_000 == COPYING_TOKENS
    assert GlpftSettings(data_sha256="", base="somewhere").copying_share(100_000) == 0


def test_the_rate_rises_and_falls_as_a_cosine() -> None:
    assert [round(rate_factor(progress, 0.2), 3) for progress in (0, 0.1, 0.2, 0.6, 1, 1.1)] == [
        0, 0.5, 1, 0.5, 0, 0,
    ]  # fmt: skip


LENGTHS = st.lists(st.integers(2, 60), min_size=1, max_size=40)


def rows_of(lengths: list[int]) -> list[TokenRow]:
    """Rows that differ in their first id."""
    return [
        TokenRow((number + 1, *[999] * (length - 1)), (False, *[True] * (length - 1)))
        for number, length in enumerate(lengths)
    ]


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 6), st.integers(0, 3))
def test_an_epoch_contains_every_row_once(lengths: list[int], size: int, seed: int) -> None:
    rows = rows_of(lengths)
    whole_epochs = GROUP * size * len(rows)
    steps = islice(batches(rows, size, 10_000, seed, start=0), whole_epochs // size)
    first_ids = [
        ids[0] for batch in steps for micro_batch in batch.micro_batches for ids in micro_batch.ids
    ]
    assert sorted(first_ids) == sorted([row.ids[0] for row in rows] * (GROUP * size))


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 6), st.integers(0, 30))
def test_a_step_is_the_same_wherever_training_resumes(
    lengths: list[int], size: int, step: int
) -> None:
    rows = rows_of(lengths)
    whole = list(islice(batches(rows, size, 200, 1, start=0), step + 10))
    assert list(islice(batches(rows, size, 200, 1, start=step), 10)) == whole[step:]


@given(LENGTHS, st.integers(64, 300))
def test_a_batch_goes_through_the_model_in_pieces_of_bounded_size(
    lengths: list[int], most: int
) -> None:
    rows = sorted(rows_of(lengths), key=lambda row: len(row.ids))
    batch = batch_of(rows, most)
    assert all(micro_batch.tokens <= most for micro_batch in batch.micro_batches)
    assert all(
        len(ids) % LENGTH_STEP == 0
        for micro_batch in batch.micro_batches
        for ids in micro_batch.ids
    )
    assert batch.tokens - batch.padding == sum(lengths)
    learned = [sum(mask) for micro_batch in batch.micro_batches for mask in micro_batch.learned]
    assert learned == [len(row.ids) - 1 for row in rows]
    assert batch.learned == sum(learned)
