"""GLPFT and its baselines: the roles' texts are learned, runs survive a kill, adapters fit the
engine, and unusable data are refused."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from loopline.agents.records import Message
from loopline.agents.roles.umi.settings import UmiOptions
from loopline.trainers.core.checkpoints import load_checkpoint
from loopline.trainers.core.network import Network, load_base, network_of
from loopline.trainers.data.datasets import build, write
from loopline.trainers.data.examples import SETS
from loopline.trainers.data.sources import from_worlds
from loopline.trainers.data.token_rows import TokenRow
from loopline.trainers.errors import NotEnoughDisk, TrainingError, UnreadableModel
from loopline.trainers.glpft.pipeline import StageListener, train
from loopline.trainers.glpft.report import Report
from loopline.trainers.glpft.rows import StageRows, rows_of, token_row
from loopline.trainers.glpft.settings import Size
from loopline.trainers.glpft.stage_training import StageState, StageTraining
from loopline.trainers.glpft.stages import (
    EVEN_SHARES,
    METHODS,
    ROLES,
    Method,
    Stage,
    is_in_part,
    stages_of,
)
from loopline.workers.engines.text.chat_prompt import build_prompt
from loopline.workers.engines.torch.lora import LoraLayers

from .full_disk import no_file_larger_than
from .tiny_glpft import DATA, SETTINGS, SIZE, changed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("glpft") / "out"
    return folder, train(SETTINGS, DATA, folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_every_stage_learns_and_spends_its_share(trained: tuple[Path, Report]) -> None:
    folder, report = trained
    assert [stage.stage for stage in report.stages] == ["copying", "backbone", *ROLES]
    for stage in report.stages:
        assert stage.validation_before is not None
        assert stage.validation_after is not None
        assert stage.validation_after < stage.validation_before
        # Within a step; steps differ slightly in size.
        assert abs(stage.tokens - stage.budget) <= 1.25 * stage.tokens / stage.steps
    assert [stage.budget for stage in report.stages] == [24_000, 48_000, 16_000, 16_000, 16_000]
    assert list(folder.glob("curves/planner/events.*"))
    assert not list(folder.glob("checkpoints/*"))


def test_prompts_are_learned_by_their_weight_and_the_reported_loss_covers_only_targets(
    trained: tuple[Path, Report], tmp_path: Path
) -> None:
    initial = trained[0] / "initial"
    stage = Stage("single", ("global_steps",), 1.0)
    rows = rows_of(DATA, stage, load_base(str(initial)), 0.0).training
    before: list[float] = []
    after: list[float] = []
    for weight in (0.0, 1.0):
        torch.manual_seed(1)
        network = network_of(
            load_base(str(initial)), adapter=False, rank=1, begins_from=None, base="initial"
        )
        schedule = SETTINGS.schedule("single", begins=True)
        training = StageTraining(
            settings=SETTINGS,
            stage="single",
            schedule=schedule.model_copy(update={"prompts": weight}),
            network=network,
            rows=StageRows(rows, rows[:20], 0),
            budget=80_000,
            work=tmp_path / f"work-{weight}",
            curves=tmp_path / f"curves-{weight}",
        )
        training.run(
            checkpoint_every=1_000,
            on_progress=lambda progress: None,
            on_checkpoint=lambda stage, step: None,
        )
        before.append(training.state.validation_before or 0.0)
        after.append(prompt_loss(network.whole, rows[:20]))
    assert before[0] == pytest.approx(before[1], rel=1e-5)
    assert after[1] < after[0] - 0.2


def prompt_loss(model: Any, rows: Sequence[TokenRow]) -> float:
    """Mean negative log-likelihood of the tokens outside targets, row by row."""
    losses: list[float] = []
    for row in rows:
        ids = torch.tensor([row.ids])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1]
        token_losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
        losses.append(float(token_losses[~torch.tensor(row.learned[1:])].mean()))
    return sum(losses) / len(losses)


def test_an_embedding_that_is_also_the_output_layer_is_stored_once(
    trained: tuple[Path, Report],
) -> None:
    begun, ended = weights(trained[0] / "initial"), weights(trained[0] / "planner")
    assert {name: tensor.shape for name, tensor in ended.items()} == {
        name: tensor.shape for name, tensor in begun.items()
    }


def test_a_finished_folder_is_left_unchanged(trained: tuple[Path, Report]) -> None:
    folder, report = trained
    messages: list[str] = []
    assert train(SETTINGS, DATA, folder, watch=StageListener(say=messages.append)) == report
    assert messages == [f"the training in {folder} is finished; --restart trains again"]


def test_training_rows_contain_the_prompt_ids_of_an_engine(trained: tuple[Path, Report]) -> None:
    """The training ids are those that an engine feeds, followed by its expected output."""
    model = load_base(str(trained[0] / "caller"))
    for name in SETS:
        row = DATA.sets[name][0]
        sequence = token_row(row, model)
        messages = (
            Message(role="system", content=row.system),
            Message(role="user", content=row.input),
        )
        prompt = build_prompt(model.render(messages, ()), (), model.codec).ids
        assert list(sequence.ids[: len(prompt)]) == prompt
        assert not any(sequence.learned[: len(prompt)])
        written = [
            token_id
            for token_id, is_learned in zip(sequence.ids, sequence.learned, strict=True)
            if is_learned
        ]
        learned = "".join(span.text for span in row.target if span.learned)
        assert model.codec.decode(written) == f"{learned}<|im_end|>"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_spends_the_same_compute(method: Method, tmp_path: Path) -> None:
    report = train(changed(method=method, tokens=30_000), DATA, tmp_path / "out")
    # The stages' budgets add up to the whole, and each ends within a step of its own.
    assert sum(stage.budget for stage in report.stages) == report.budget == 30_000
    for stage in report.stages:
        assert abs(stage.tokens - stage.budget) <= stage.tokens / stage.steps
    assert len({stage.parameters for stage in report.stages}) == 1


def test_a_backbone_can_be_trained_on_whole_trajectories(tmp_path: Path) -> None:
    """Each solution is one row, and all of it except the observations is learned."""
    folder = tmp_path / "out"
    settings = changed(method="single", global_set="global_trajectories", tokens=40_000)
    *_, single = train(settings, DATA, folder).stages
    stage = Stage("single", ("global_trajectories",), 1.0)
    rows = rows_of(DATA, stage, load_base(str(folder / "initial")), settings.validation)
    assert (
        single.rows
        == len(rows.training)
        == len(DATA.sets["global_trajectories"]) - len(rows.validation)
    )
    assert any(False in row.learned[row.learned.index(True) :] for row in rows.training)
    assert single.validation_before is not None
    assert single.validation_after is not None
    assert single.validation_after < single.validation_before


def test_without_a_budget_a_training_takes_the_published_epochs(tmp_path: Path) -> None:
    report = train(changed(tokens=None, batch=48), DATA, tmp_path / "out")
    by_name = {stage.stage: stage for stage in report.stages}
    model = load_base(str(tmp_path / "out/initial"))
    rows = rows_of(DATA, Stage("planner", ("planner",), 1.0), model, SETTINGS.validation)
    epochs = SETTINGS.schedule("planner").epochs
    assert by_name["planner"].budget == pytest.approx(epochs * rows.tokens, abs=1)


def test_without_reuse_no_instruction_is_learned_twice() -> None:
    id_sets: list[set[str]] = []
    for stage in stages_of("no-reuse", EVEN_SHARES)[:2]:
        id_sets.append(
            {
                row.instruction_id
                for row in DATA.sets[stage.sets[0]]
                if is_in_part(row.instruction_id, stage.part)
            }
        )
    assert id_sets[0]
    assert id_sets[1]
    assert not id_sets[0] & id_sets[1]


def test_a_run_killed_with_sigkill_and_resumed_has_the_same_weights_and_curve(
    tmp_path: Path, trained: tuple[Path, Report]
) -> None:
    """Killed by the system in the middle of a role's stage; resumes in another process."""
    write(DATA, tmp_path / "data")
    killed = tmp_path / "killed"
    script = (
        "import sys; from pathlib import Path; from loopline.trainers.data.datasets import read;"
        "from loopline.trainers.glpft.pipeline import StageListener, train;"
        "from loopline.trainers.glpft.settings import GlpftSettings;"
        "tell = lambda stage, step: print('checkpoint', stage, step, flush=True);"
        "train(GlpftSettings.model_validate_json(sys.argv[1]), read(Path(sys.argv[2])),"
        "Path(sys.argv[3]), checkpoint_every=2, watch=StageListener(checkpoint=tell))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, SETTINGS.model_dump_json(), tmp_path / "data", killed],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("checkpoint planner 4"):
                process.send_signal(signal.SIGKILL)
                break
        process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    assert (killed / "backbone/training.json").exists()
    assert not (killed / "planner").exists()
    (killed / ".planner.99999999.part").mkdir()  # as left by a process killed while it writes
    report = train(SETTINGS, DATA, killed)
    assert not list(killed.glob(".*.part"))
    folder, whole = trained
    for stage, reference_stage in zip(report.stages, whole.stages, strict=True):
        assert (stage.losses, stage.tokens, stage.steps) == (
            reference_stage.losses,
            reference_stage.tokens,
            reference_stage.steps,
        )
        assert stage.validation_after == reference_stage.validation_after
        resumed_weights, reference_weights = (
            weights(killed / stage.stage),
            weights(folder / stage.stage),
        )
        assert all(
            torch.equal(resumed_weights[name], reference_weights[name])
            for name in reference_weights
        )


@pytest.mark.parametrize("way", ["loss", "gradient"])
def test_a_nan_loss_ends_a_stage_at_its_last_good_checkpoint(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, steps = StageTraining._step, 0  # pyright: ignore[reportPrivateUsage]

    def logits(self: Network, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        result = learned_logits(self, ids, learned)
        if steps < 3:
            return result
        if way == "loss":
            return result * math.inf
        result.register_hook(endless)
        return result

    def step(self: StageTraining, *arguments: Any) -> None:
        nonlocal steps
        steps += 1
        plain(self, *arguments)

    learned_logits = Network.learned_logits
    monkeypatch.setattr(Network, "learned_logits", logits)
    monkeypatch.setattr(StageTraining, "_step", step)
    pattern = "copying: the (loss|gradient's norm) is nan at step 3, .*not applied; .*too high"
    with pytest.raises(TrainingError, match=pattern):
        train(SETTINGS, DATA, tmp_path / "out", checkpoint_every=1)
    result = load_checkpoint(tmp_path / "out/checkpoints/copying", StageState)
    assert result is not None
    assert result.state.step == 2
    assert all(tensor.isfinite().all() for tensor in result.tensors.values())


def endless(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * math.inf


def test_a_full_disk_at_the_end_of_a_stage_costs_no_step_and_leaves_no_partial_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, out = Network.write, tmp_path / "out"

    def write_cut_short(self: Network, folder: Path, base: Path) -> None:
        with no_file_larger_than(512):
            plain(self, folder, base)

    monkeypatch.setattr(Network, "write", write_cut_short)
    pattern = r"out/copying can't be written \(.*free some space, then resume with the same command"
    with pytest.raises(NotEnoughDisk, match=pattern):
        train(SETTINGS, DATA, out)
    checkpoint = load_checkpoint(out / "checkpoints/copying", StageState)
    assert checkpoint is not None
    assert checkpoint.state.ended
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoints", "curves", "initial", "settings.json",
    ]  # fmt: skip


def test_changed_settings_are_refused_by_name(trained: tuple[Path, Report]) -> None:
    with pytest.raises(TrainingError, match=r"other settings: seed \(1 → 2\)"):
        train(changed(seed=2), DATA, trained[0])


def test_an_unrelated_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="already contains other files"):
        train(SETTINGS, DATA, tmp_path)
    with pytest.raises(TrainingError, match="already contains other files"):
        train(SETTINGS, DATA, tmp_path, restart=True)


def test_instructions_of_a_held_out_split_are_refused(tmp_path: Path) -> None:
    held_out = build([from_worlds("unseen_apis", 8, 1)], UmiOptions(tool_style="signatures"))
    with pytest.raises(TrainingError, match="held-out split 'unseen_apis'"):
        train(changed(data_sha256=held_out.card.sha256), held_out, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_beyond_the_context_are_counted_and_no_rows_left_is_an_error(tmp_path: Path) -> None:
    short = Size(**{**SIZE.model_dump(), "context": 16})
    with pytest.raises(TrainingError, match=r"are longer than the model's context of 16 tokens"):
        train(changed(size=short), DATA, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "lora"}, "an adapter of random weights learns nothing"),
        ({"weights": "lora-roles", "method": "single"}, "trains no backbone"),
    ],
)
def test_weights_that_do_not_suit_the_method_or_base_are_refused(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        train(changed(**changes), DATA, tmp_path / "out")


@pytest.fixture(scope="module")
def adapters(trained: tuple[Path, Report], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("peft", reason="needs make install")
    folder = tmp_path_factory.mktemp("lora") / "out"
    base = str(trained[0] / "backbone")
    train(
        changed(base=base, base_sha256="", size=None, weights="lora", rank=4, tokens=60_000),
        DATA,
        folder,
    )
    return folder


def test_a_role_s_adapter_starts_from_the_backbone_s_on_the_same_base(
    adapters: Path, trained: tuple[Path, Report]
) -> None:
    backbone = load_file(adapters / "backbone/adapter_model.safetensors")
    planner = load_file(adapters / "planner/adapter_model.safetensors")
    assert backbone.keys() == planner.keys()
    assert any(name.endswith("lora_B.weight") and tensor.any() for name, tensor in backbone.items())
    loaded = load_base(str(trained[0] / "backbone"))
    again = network_of(loaded, adapter=True, rank=4, begins_from=adapters / "backbone", base="base")
    begun = dict(again.trained())
    assert len(begun) == len(backbone)
    for name, tensor in backbone.items():
        assert torch.equal(begun[name.replace(".weight", ".default.weight")], tensor)


def test_the_engine_s_lora_computes_what_was_trained(
    adapters: Path, trained: tuple[Path, Report]
) -> None:
    base = str(trained[0] / "backbone")
    ids = torch.arange(1, 21).reshape(1, -1)
    peft = network_of(
        load_base(base), adapter=True, rank=4, begins_from=adapters / "caller", base="base"
    )
    base_model: Any = load_base(base)
    with torch.no_grad():
        plain = base_model.model(ids).logits
        layers = LoraLayers(base_model.model, base_model.device)
        layers.use([layers.read(str(adapters / "caller"))])
        peft.whole.eval()
        expected = peft.whole(ids).logits
        assert torch.allclose(base_model.model(ids).logits, expected, atol=1e-5)
        assert not torch.allclose(plain, expected, atol=1e-3)


def test_damaged_facts_are_refused_with_their_path_and_a_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    train(changed(method="single", tokens=2_000), DATA, folder)
    (folder / "report.json").write_text("{")
    with pytest.raises(UnreadableModel, match=r"report\.json is damaged.*; remove it"):
        train(changed(method="single", tokens=2_000), DATA, folder)
    (folder / "report.json").unlink()
    again = train(changed(method="single", tokens=2_000), DATA, folder)
    assert again.budget == 2_000
