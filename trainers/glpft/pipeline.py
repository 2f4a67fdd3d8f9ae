"""Trains all stages of a method, one after the other.

    OUTPUT/settings.json          everything that determines the result
    OUTPUT/data/                  the data set, if it was made only for this training
    OUTPUT/initial/               random weights and their tokenizer, without a base
    OUTPUT/<stage>/               the finished stage: a model or an adapter, and training.json
    OUTPUT/checkpoints/<stage>/   checkpoints of the stage in training
    OUTPUT/curves/<stage>/        curves for TensorBoard
    OUTPUT/report.json            compute and losses of all stages
    OUTPUT/report.html            the same as curves

Finished stages are not repeated; a stage's folder appears complete or not at all.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.environments.api_worlds import Split
from loopline.trainers.core.checkpoints import (
    claimed_settings,
    forget_work,
    require_same_recipe,
    require_unused,
)
from loopline.trainers.core.curves import DEFAULT_TRACKERS, require_trackers
from loopline.trainers.core.json_records import write_record
from loopline.trainers.core.memory import keep_freed_memory, peak_memory_mb
from loopline.trainers.core.network import base_folder, load_base, network_of
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.core.processes import Processes
from loopline.trainers.data.datasets import DataSet, write
from loopline.trainers.data.token_rows import RecordedRows
from loopline.trainers.errors import TrainingError
from loopline.trainers.glpft.copying import copying_rows
from loopline.trainers.glpft.from_scratch import write_new_model
from loopline.trainers.glpft.on_policy_training import OnPolicyTraining
from loopline.trainers.glpft.page import PAGE, render
from loopline.trainers.glpft.preference_training import PreferenceTraining
from loopline.trainers.glpft.report import (
    FACTS,
    REPORT,
    Report,
    StageFacts,
    read_facts,
    read_report,
)
from loopline.trainers.glpft.rows import StageRows, TrainingData, rows_of
from loopline.trainers.glpft.settings import COPYING_SHARE, COPYING_TOKENS, GlpftSettings
from loopline.trainers.glpft.stage_training import StageProgress, StageTraining
from loopline.trainers.glpft.stages import (
    BACKBONE,
    COPYING,
    ROLES,
    Stage,
    even_shares,
    stages_of,
)
from loopline.workers.atomic_files import atomic_folder, write_atomic
from loopline.workers.engines.local.adapter_base import weights_sha256
from loopline.workers.engines.torch.loading import LoadedModel

SETTINGS = "settings.json"
INITIAL = "initial"
CHECKPOINTS = "checkpoints"
DATA = "data"
"""Subfolder of a data set that was made only for this training."""
_NAMES = (BACKBONE, "single", "multitask", *ROLES, COPYING)
"""Names of all stages, except those of agents."""
TRAININGS: dict[str, type[StageTraining]] = {
    "sft": StageTraining,
    "dpo": PreferenceTraining,
    "on-policy": OnPolicyTraining,
}
"""Class of a stage, by objective."""


@dataclass(frozen=True)
class StageListener:
    """Callbacks that report progress."""

    progress: Callable[[StageProgress], None] = lambda progress: None
    checkpoint: Callable[[str, int], None] = lambda stage, step: None
    say: Callable[[str], None] = lambda text: None


def train(
    settings: GlpftSettings,
    data: TrainingData,
    output: Path,
    *,
    restart: bool = False,
    checkpoint_every: int = 200,
    trackers: tuple[str, ...] = DEFAULT_TRACKERS,
    watch: StageListener | None = None,
    processes: Processes | None = None,
) -> Report:
    """Train the stages of the method that are not finished in `output`, resuming the current one.

    With several processes, all must see the same `output`; the first one writes and reports. After
    Ctrl-C the training finishes the step, saves a checkpoint and raises KeyboardInterrupt. Raises
    `TrainingError`s.
    """
    processes = processes or Processes()
    watch = watch if watch is not None and processes.is_first else StageListener()
    require_possible(settings, data, processes)
    require_trackers(trackers)
    with processes.in_turn():
        claim(settings, data, output, restart=restart and processes.is_first)
    finished = read_report(output)
    if finished is not None:
        watch.say(f"the training in {output} is finished; --restart trains again")
        return finished
    keep_freed_memory()
    import torch

    torch.set_num_threads(settings.threads)
    first = output / INITIAL if settings.base is None else base_folder(settings.base)
    with processes.in_turn():
        if settings.base is None and not first.is_dir():
            watch.say("learning a tokenizer…")
            assert settings.size is not None
            assert isinstance(data, DataSet), "recorded ids are of a base's tokenizer"
            write_new_model(data, settings.size, settings.seed, first)
    budget, shares = _budget(settings, data, first)
    facts: list[StageFacts] = []
    copying = settings.copying_share(budget)
    for stage in stages_of(
        settings.method, shares, settings.global_set, copying=copying, agents=settings.agents
    ):
        stage_facts = read_facts(output / stage.name)
        if stage_facts is None:
            stage_facts = _Pipeline(
                settings, data, output, first, watch, processes, trackers
            ).stage(stage, round(budget * stage.share), checkpoint_every)
        elif processes.is_first:
            forget_work(output / CHECKPOINTS / stage.name)
        facts.append(stage_facts)
    report = Report(
        settings=settings,
        budget=budget,
        tokens=sum(entry.tokens for entry in facts),
        padding=sum(entry.padding for entry in facts),
        seconds=round(sum(entry.seconds for entry in facts), 1),
        stages=tuple(facts),
    )
    if processes.is_first:
        write_atomic(output / PAGE, render(report))
        write_record(output / REPORT, report)
    return report


def require_trainable(data: TrainingData) -> None:
    """Raise `TrainingError` for a data set with instructions of a benchmark; rows read from
    recorded runs have none."""
    if isinstance(data, RecordedRows):
        return
    for source in data.card.sources:
        split = source.settings.get("split", Split.TRAIN.value)
        if split != Split.TRAIN.value:
            raise TrainingError(
                f"the data set has instructions of the held-out split {split!r} ({source.name}): "
                "a model trained on them could not be evaluated; create one with `train data "
                "--worlds train`"
            )


@dataclass(frozen=True)
class _Pipeline:
    settings: GlpftSettings
    data: TrainingData
    output: Path
    first: Path
    watch: StageListener
    processes: Processes
    trackers: tuple[str, ...]

    def stage(self, stage: Stage, budget: int, checkpoint_every: int) -> StageFacts:
        import torch
        import transformers

        settings, folder = self.settings, self.output / stage.name
        # The previous stage's model is in a cycle of references with its adapter.
        gc.collect()
        adapter = settings.trains_adapter(stage.name)
        before = None if stage.begins_from is None else self.output / stage.begins_from
        same_kind = before is not None and settings.trains_adapter(before.name) == adapter
        # An adapter continues an adapter on the same base; everything else loads the weights.
        base = self.first if before is None or (adapter and same_kind) else before
        loaded = load_base(str(base), template_options=settings.template_options)
        rows = self._rows(stage, loaded, budget)
        # Roles of one backbone start with different random numbers, regardless of earlier stages.
        names = (*_NAMES, *settings.agents)
        torch.manual_seed(settings.seed + 1 + names.index(stage.name))
        network = network_of(
            loaded,
            adapter=adapter,
            rank=settings.rank,
            begins_from=before if adapter and same_kind else None,
            base=settings.base if settings.base and base == self.first else base.name,
            processes=self.processes,
        )
        training = TRAININGS[settings.objective](
            settings=settings,
            stage=stage.name,
            schedule=settings.schedule(stage.name, begins=stage.is_first),
            network=network,
            rows=rows,
            budget=budget,
            work=self.output / CHECKPOINTS / stage.name,
            curves=self.output / "curves" / stage.name,
            trackers=self.trackers,
        )
        after = training.run(
            checkpoint_every=checkpoint_every,
            on_progress=self.watch.progress,
            on_checkpoint=self.watch.checkpoint,
        )
        state = training.state
        facts = StageFacts(
            settings=settings,
            stage=stage.name,
            adapter=adapter,
            base_sha256=weights_sha256(base),
            parameters=int(network.whole.num_parameters()),
            trained_parameters=sum(parameter.numel() for _, parameter in network.trained()),
            rows=len(rows.training),
            too_long=rows.too_long,
            steps=state.step,
            tokens=state.tokens,
            budget=budget,
            padding=state.padding,
            learned=state.learned,
            seconds=round(state.seconds, 1),
            losses=state.losses,
            validation_before=state.validation_before,
            validation_after=after,
            peak_memory_mb=peak_memory_mb(network.device),
            torch=torch.__version__,
            transformers=transformers.__version__,
        )
        # All processes take part in gathering the weights, and the first one writes them.
        first = self.processes.is_first
        with (
            guard_disk_writes(folder),
            atomic_folder(folder) if first else nullcontext(folder) as partial,
        ):
            network.write(partial, base)
            if first:
                (partial / FACTS).write_text(facts.model_dump_json(indent=1) + "\n")
        if self.processes.is_first:
            forget_work(training.work)
        self.processes.wait()
        return facts

    def _rows(self, stage: Stage, loaded: LoadedModel, budget: int) -> StageRows:
        recorded = isinstance(self.data, RecordedRows)
        whose = f" of {stage.agent}" if stage.agent else ""
        sets = f"recorded sessions{whose}" if recorded else ", ".join(stage.sets)
        self.watch.say(f"{stage.name}: reading {sets}…")
        if stage.name == COPYING and isinstance(self.data, DataSet):
            return copying_rows(self.data, stage, loaded, self.settings, budget)
        rows = rows_of(self.data, stage, loaded, self.settings.validation)
        if rows.too_long:
            self.watch.say(
                f"{stage.name}: {rows.too_long:,} rows are longer than the model's context of "
                f"{loaded.max_context:,} tokens and are left out"
            )
        return rows


def claim(
    settings: GlpftSettings,
    data: TrainingData,
    output: Path,
    *,
    keep_data: bool = False,
    restart: bool = False,
) -> None:
    """Mark the folder as belonging to this training; `keep_data` for data that exist nowhere else.
    Raises `TrainingError`, with the folder unchanged, if it belongs to another one."""
    path = output / SETTINGS
    existing_settings = claimed_settings(path, GlpftSettings) if path.exists() else None
    if existing_settings is not None and not restart:
        require_same_recipe(existing_settings, settings, output)
        return
    if existing_settings is not None:
        names = (CHECKPOINTS, "curves", INITIAL, *_NAMES, *((DATA,) if keep_data else ()))
        for name in (*names, *existing_settings.agents):
            shutil.rmtree(output / name, ignore_errors=True)
        for name in (REPORT, PAGE):
            (output / name).unlink(missing_ok=True)
    else:
        require_unused(output, but=(DATA,))
    output.mkdir(parents=True, exist_ok=True)
    if keep_data:
        if isinstance(data, RecordedRows):
            data.write(output / DATA)
        else:
            write(data, output / DATA)
    write_record(path, settings)


def require_possible(settings: GlpftSettings, data: TrainingData, processes: Processes) -> None:
    """Raise `TrainingError` for data that must not be learned from, for weights that the method
    cannot train, and for weights that can't be sharded."""
    require_trainable(data)
    if processes.sharded and settings.is_micro:
        raise TrainingError(
            "models trained by micro schedules are small and need their matrices whole (Muon): "
            "launch them without FSDP, or name a larger model with --base"
        )
    has_backbone = settings.method in ("glpft", "no-reuse")
    if settings.weights == "lora" and settings.base is None:
        raise TrainingError(
            "an adapter of random weights learns nothing: name a model with --base, or train the "
            "backbone whole with --weights lora-roles"
        )
    if settings.weights == "lora-roles" and not has_backbone:
        raise TrainingError(
            f"--method {settings.method} trains no backbone that the roles could be adapters of; "
            "use --weights full, or lora with a --base"
        )


def _budget(
    settings: GlpftSettings, data: TrainingData, first: Path
) -> tuple[int, Mapping[str, float]]:
    """Tokens for all stages, and the relative weight of each."""
    if settings.tokens is not None:
        return settings.tokens, even_shares(settings.agents)
    # The tokens that GLPFT needs for its epochs, so that every method has the same number; for
    # recorded rows that train a single model, the tokens that this model needs.
    is_single = isinstance(data, RecordedRows) and not settings.agents
    method = "single" if is_single else "glpft"
    loaded = load_base(str(first), template_options=settings.template_options)
    needed = {
        stage.name: settings.schedule(stage.name, begins=stage.is_first).epochs
        * rows_of(data, stage, loaded, settings.validation).tokens
        for stage in stages_of(
            method, even_shares(settings.agents), settings.global_set, agents=settings.agents
        )
    }
    whole = sum(needed.values())
    shares = {name: tokens / whole for name, tokens in needed.items()}
    if settings.base is None:
        whole += min(COPYING_TOKENS, whole * COPYING_SHARE / (1 - COPYING_SHARE))
    return round(whole), shares
