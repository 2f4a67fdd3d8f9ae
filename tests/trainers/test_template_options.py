"""Prompts of a trainer use the template options of the pool that will serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopline.runtime.errors import FixableError
from loopline.trainers.cli import app
from loopline.trainers.core.network import load_base
from loopline.trainers.core.publishing import Publication, require_base
from loopline.trainers.data.datasets import write
from loopline.trainers.data.examples import Example, Span
from loopline.trainers.errors import TrainingError, UnreadableModel
from loopline.trainers.glpft.rows import token_row
from loopline.trainers.grpo.vectorized_rollout import Prompter
from loopline.workers.engines.local.adapter_base import weights_sha256
from loopline.workers.engines.settings import ModelSettings
from tests.workers.engines.tiny_model import NO_THOUGHT, THINKING_TEMPLATE

from .grpo.tiny_grpo import write_base
from .tiny_glpft import DATA

OFF = {"enable_thinking": False}
EXAMPLE = Example(
    source="s", trajectory_id="t", step=0, instruction_id="i", system="Plan.", input="Go.",
    target=(Span(text="Next: caller."),),
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_base(tmp_path_factory.mktemp("thinking") / "base")
    (folder / "chat_template.jinja").write_text(THINKING_TEMPLATE)
    return folder


def test_a_rollout_in_the_trainer_s_process_answers_after_an_empty_thought(base: Path) -> None:
    for options, ending in (OFF, NO_THOUGHT), ({}, "<|im_start|>assistant\n"):
        loaded = load_base(str(base), template_options=options)
        assert loaded.codec.decode(Prompter(loaded).ids("Go.")).endswith(ending)


def test_a_training_row_has_its_target_after_an_empty_thought(base: Path) -> None:
    loaded = load_base(str(base), template_options=OFF)
    row = token_row(EXAMPLE, loaded)
    first = row.learned.index(True)
    assert loaded.codec.decode(row.ids[:first]).endswith(NO_THOUGHT)
    assert loaded.codec.decode(row.ids[first:-1]) == "Next: caller."


def test_an_option_that_the_base_s_template_ignores_is_an_error_before_training(base: Path) -> None:
    with pytest.raises(UnreadableModel, match="did you mean enable_thinking"):
        load_base(str(base), template_options={"enable_thinkin": False})


def test_adapters_are_not_published_to_a_pool_that_renders_prompts_differently(
    base: Path,
) -> None:
    adapter = Publication("umi/planner", base, weights_sha256(base), OFF)
    plain = ModelSettings(engine="torch", model=str(base))
    with pytest.raises(TrainingError, match=r"enable_thinking.*but the pool umi has \{\}"):
        require_base(adapter, {"umi": plain})
    require_base(adapter, {"umi": plain.model_copy(update={"template_options": OFF})})


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("enable_thinking", "is not NAME=VALUE"),
        ("messages=none", "--template-option: 'messages' is given to the chat template already"),
    ],
)
def test_the_command_reports_an_unsupported_option(
    word: str, message: str, base: Path, tmp_path: Path
) -> None:
    write(DATA, tmp_path / "data")
    ended = CliRunner().invoke(
        app,
        [
            *("glpft", str(tmp_path / "out"), "--data", str(tmp_path / "data")),
            *("--base", str(base), "--weights", "lora", "--template-option", word),
        ],
    )
    assert isinstance(ended.exception, FixableError)
    assert message in str(ended.exception)
