"""A whole training from existing groups.

    OUTPUT/settings.json          everything that determines the result
    OUTPUT/options.toml           the command's options, a file for --config
    OUTPUT/runs.json              the recorded runs that it learns from
    OUTPUT/checkpoints/           checkpoints of the running training
    OUTPUT/curves/<policy>/       curves for TensorBoard
    OUTPUT/policies/<policy>/     the finished policy: a model or an adapter, and training.json
    OUTPUT/last-good/<policy>/    the same of the last good version, if a loss was not finite
    OUTPUT/learned-tokens/        importance ratios, if they are kept
    OUTPUT/report.json            every step
    OUTPUT/report.html            the same as curves

A folder of policies appears complete or not at all, and a finished training is not repeated.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from loopline.runtime.observe.learned_tokens import LEARNED_TOKENS
from loopline.trainers.core.checkpoints import (
    CheckpointState,
    claimed_settings,
    forget_work,
    require_same_recipe,
    require_unused,
)
from loopline.trainers.core.curves import DEFAULT_TRACKERS, Curves, require_trackers
from loopline.trainers.core.interruption import deferred_interrupt
from loopline.trainers.core.json_records import write_record
from loopline.trainers.core.memory import keep_freed_memory, peak_memory_mb
from loopline.trainers.core.network import Network, load_base, network_of
from loopline.trainers.core.processes import Processes, unshared_folder_error
from loopline.trainers.errors import NotEnoughDisk, TrainingError
from loopline.trainers.grpo.data import RUNS, GrpoData, RecordedRuns
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.init_from import initial_weights
from loopline.trainers.grpo.kept_ratios import KeptRatios
from loopline.trainers.grpo.learnable import TRUNCATED, group_worth
from loopline.trainers.grpo.learner import Learner, NotFinite
from loopline.trainers.grpo.page import PAGE, render
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.report import REPORT, Report, StepFacts, read_report
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.storing import (
    folder_name,
    require_room,
    restore,
    save,
    write_policies,
)
from loopline.trainers.grpo.stream import StepBatch, batches_of, step_batches
from loopline.workers.atomic_files import write_atomic
from loopline.workers.engines.torch.loading import LoadedModel

SETTINGS = "settings.json"
CHECKPOINTS = "checkpoints"
POLICIES = "policies"
LAST_GOOD = "last-good"
_LONGER = "roll out with a higher limit (--max-tokens), or learn from them with --truncated keep"


class GrpoState(CheckpointState):
    """State in a checkpoint besides its tensors."""

    settings: GrpoSettings
    version: int
    """Version of the policies."""
    seconds: float
    history: tuple[StepFacts, ...]


@dataclass(frozen=True)
class Progress:
    """The progress that is shown after a step."""

    step: int
    steps: int
    facts: StepFacts


@dataclass(frozen=True)
class StepListener:
    """Callbacks that report progress."""

    progress: Callable[[Progress], None] = lambda progress: None
    checkpoint: Callable[[int], None] = lambda step: None
    say: Callable[[str], None] = lambda text: None


def train(
    settings: GrpoSettings,
    data: GrpoData,
    loaded: LoadedModel,
    output: Path,
    *,
    restart: bool = False,
    checkpoint_every: int = 10,
    keep_ratios: int = 0,
    trackers: tuple[str, ...] = DEFAULT_TRACKERS,
    watch: StepListener | None = None,
    processes: Processes | None = None,
) -> Report:
    """Train the policies in `output` on the data, resuming from a checkpoint if there is one;
    `loaded` is the base, whose weights are changed. `keep_ratios` is a number of tokens: see
    `KeptRatios`.

    With several `processes`, all must see the same `output`; the first one writes and reports.
    After Ctrl-C the training finishes the step, saves a checkpoint and raises KeyboardInterrupt. A
    loss that is not finite raises `NotFinite`, and the last good version is kept. Raises
    `TrainingError`s.
    """
    processes = processes or Processes()
    watch = watch if watch is not None and processes.is_first else StepListener()
    require_possible(settings, data)
    require_trackers(trackers)
    with processes.in_turn():
        if processes.is_first:
            claim(output, settings, data, restart=restart)
        elif not (output / SETTINGS).exists():
            raise unshared_folder_error(output, processes)
    finished = read_report(output)
    if finished is not None:
        if processes.is_first:
            forget_work(output / CHECKPOINTS)
        watch.say(f"the training in {output} is finished; --restart trains again")
        return finished
    cut = sum(group_worth(group, settings) == "truncated" for group in data.groups)
    if cut:
        watch.say(f"left out: {cut:,} × {TRUNCATED}; {_LONGER}")
    keep_freed_memory()
    import torch

    torch.set_num_threads(settings.threads)
    ratios = KeptRatios(output, keep_ratios, processes.index)
    return _Training(
        settings, data, loaded, output, checkpoint_every, ratios, watch, processes, trackers
    ).run()


def initial_policies(
    settings: GrpoSettings,
    names: Sequence[str],
    loaded: LoadedModel,
    processes: Processes | None = None,
) -> Policies:
    """The initial policies: those that the settings name, otherwise their base's weights or, for
    adapters, a random A from the settings' seed and zero B. `loaded` is the model `settings.base`;
    other bases are loaded here, each once. Raises `TrainingError`."""
    import torch

    torch.manual_seed(settings.seed)
    by_model: dict[str, Network] = {}
    networks: dict[str, Network] = {}
    for name in names:
        model = settings.base_of(name).model
        if model not in by_model:
            base = loaded
            if model != settings.base:
                device = "cpu" if loaded.device.type == "cpu" else "auto"
                base = load_base(model, settings.base_precision, device=device)
            by_model[model] = _network(settings, base, model, processes)
        networks[name] = by_model[model]
    begins = initial_weights(networks, settings)
    return Policies(networks[names[0]], names, settings, begins, networks)


def _network(
    settings: GrpoSettings, loaded: LoadedModel, base: str, processes: Processes | None
) -> Network:
    """Network of one base. Raises `TrainingError` for settings that it does not support."""
    if processes is not None and processes.sharded:
        refused = {
            "--head-chunk": settings.head_chunk > 0,
            "--checkpoint-activations": settings.checkpoint_activations,
            "--offload-optimizer": settings.offload_optimizer,
            "--optimizer adamw-8bit": settings.optimizer != "adamw",
        }
        for option in (option for option, is_set in refused.items() if is_set):
            raise TrainingError(f"{option} does not work with FSDP: leave out one of them")
    network = network_of(
        loaded,
        adapter=settings.weights == "lora",
        rank=settings.rank,
        begins_from=None,
        base=base,
        processes=processes,
    )
    if settings.head_chunk and not network.has_plain_head:
        raise TrainingError(
            f"{base} changes its logits after the output layer: leave out --head-chunk"
        )
    if settings.checkpoint_activations:
        network.checkpoint_layers()
    if settings.share_prefixes and not network.has_full_attention:
        raise TrainingError(
            f"{base} has layers that see only a window or a state instead of all previous tokens, "
            "so it cannot compute samples as a tree: add --no-share-prefixes"
        )
    return network


def policy_names(settings: GrpoSettings, data: GrpoData) -> tuple[str, ...]:
    """Names of all policies that the groups train."""
    return tuple(dict.fromkeys(settings.policy_of(agent) for agent in data.agents))


class _Training:
    def __init__(
        self,
        settings: GrpoSettings,
        data: GrpoData,
        loaded: LoadedModel,
        output: Path,
        checkpoint_every: int,
        ratios: KeptRatios,
        watch: StepListener,
        processes: Processes,
        trackers: tuple[str, ...],
    ) -> None:
        self.processes, self.trackers = processes, trackers
        self.settings, self.data, self.output = settings, data, output
        self.checkpoint_every, self.watch = checkpoint_every, watch
        self.policies = initial_policies(settings, policy_names(settings, data), loaded, processes)
        self.ratios = ratios
        self.learner = Learner(self.policies, ratios)
        self.work = output / CHECKPOINTS
        self.state = GrpoState(
            step=0, settings=settings, version=settings.base_version, seconds=0.0, history=()
        )

    def run(self) -> Report:
        """Train to the end and write the results."""
        require_room(self.work, self.policies)
        self.state = restore(self.work, GrpoState, self.policies) or self.state
        if self.processes.sum_of(self.state.step) != self.processes.count * self.state.step:
            raise unshared_folder_error(self.output, self.processes)
        if self.processes.is_first:
            # Before its first step: without this process's part, the others can't finish theirs.
            self.ratios.forget_after(self.state.step)
        batches, stale = batches_of(self.data.groups, self.settings)
        with ExitStack() as open_curves, deferred_interrupt() as interruption:
            curves = {
                name: open_curves.enter_context(
                    Curves(self._curves(name), self.state.step, self.trackers)
                )
                for name in self.policies.names
            }
            for batch in islice(batches, self.state.step, None):
                self._step(batch, curves, len(batches))
                ended = self.state.step == len(batches)
                is_interrupted = self.processes.sum_of(interruption.requested) > 0
                if ended or is_interrupted or self.state.step % self.checkpoint_every == 0:
                    self._save()
                    self.watch.checkpoint(self.state.step)
                if is_interrupted:
                    # The first process is still writing its checkpoint.
                    self.processes.wait()
                    raise KeyboardInterrupt
        report = self._report(stale)
        if self._writes:
            self._write(POLICIES, report)
        if self.processes.is_first:
            write_atomic(self.output / PAGE, render(report))
            write_record(self.output / REPORT, report)
            forget_work(self.work)
        self.processes.wait()
        return report

    def _step(self, batch: StepBatch, curves: dict[str, Curves], steps: int) -> None:
        began = time.monotonic()
        try:
            rate = self.settings.schedule.factor(self.state.step + 1, steps)
            policy_steps = self.learner.step(batch, rate)
        except NotFinite as error:
            number = self.state.step + 1
            try:
                saved = self._save_last_good() if self.processes.is_first else None
            finally:
                # Once another process has exited, a launcher kills the first one during its
                # checkpoint. If one has exited already, this error is what the user must know.
                with suppress(RuntimeError):
                    self.processes.wait()
            lower = f"Lower --learning-rate ({self.settings.learning_rate:.1e})"
            message = f"step {number}: {error}. {lower}, or leave those runs out"
            raise NotFinite(message if saved is None else f"{message}; {saved}") from error
        self.ratios.write(self.state.step + 1)
        facts = self.learner.facts(batch, policy_steps)
        for name, drawn in facts.curves().items():
            curves[name].add(self.state.step + 1, drawn)
        self.state = self.state.model_copy(
            update={
                "step": self.state.step + 1,
                "version": batch.version + 1,
                "seconds": self.state.seconds + time.monotonic() - began,
                "history": (*self.state.history, facts),
            }
        )
        self.watch.progress(Progress(self.state.step, steps, facts))

    def _save_last_good(self) -> str:
        """Write the last good version, which the bad step left unchanged. Returns which version it
        is and where, or why it is missing."""
        if self.state.step == 0:
            return "no step was trained before it"
        if self.processes.sharded:
            return (
                f"the last good version is the latest checkpoint in {self.work}, from which the "
                "same command resumes"
            )
        good = f"version {self.state.version}, after step {self.state.step}, is the last good one"
        try:
            self._save()
            self._write(LAST_GOOD, self._report())
        except NotEnoughDisk as error:
            # The error, with the runs that caused it, must not get lost because of this one.
            return f"{good}, but could not be saved: {error}"
        return f"{good}: it is in {self.output / LAST_GOOD}"

    def _save(self) -> None:
        if self._writes:
            save(self.work, self.state, self.policies)

    @property
    def _writes(self) -> bool:
        """Whether this process takes part in writing weights."""
        return self.processes.is_first or self.processes.sharded

    def _curves(self, name: str) -> Path | None:
        return None if not self.processes.is_first else self.output / "curves" / folder_name(name)

    def _report(self, stale: int = 0) -> Report:
        counts = Counter(group_worth(group, self.settings) for group in self.data.groups)
        return Report(
            settings=self.settings,
            version=self.state.version,
            runs=len(self.data.runs),
            groups=len(self.data.groups),
            zero_variance=counts["zero_variance"],
            truncated=counts["truncated"],
            stale=sum(step.stale for step in self.state.history) + stale,
            skipped=self.data.skipped,
            seconds=round(self.state.seconds, 1),
            peak_memory_mb=peak_memory_mb(self.policies.network.device),
            parameters=self.policies.parameters,
            trained_parameters=self.policies.most_trained_parameters,
            steps=self.state.history,
        )

    def _write(self, where: str, report: Report) -> None:
        """Write all policies in the form that the engines read."""
        facts_of = partial(
            PolicyFacts.of, settings=report.settings, version=report.version, steps=report.steps
        )
        write_policies(self.policies, self.output / where, facts_of)


def require_possible(settings: GrpoSettings, data: GrpoData) -> None:
    """Raise `TrainingError` if settings and data are incompatible."""
    require_known(settings, policy_names(settings, data))
    if next(step_batches(data.groups, settings), None) is None:
        counts = Counter(group_worth(group, settings) for group in data.groups)
        if not counts["trained"] and counts["truncated"]:
            raise TrainingError(
                f"there is nothing to learn from: of {len(data.groups):,} groups "
                f"{counts['zero_variance']:,} have equal rewards, and of the other "
                f"{counts['truncated']:,} all completions ran into their limit; {_LONGER}"
            )
        newest = max(group.policy.version for group in data.groups)
        raise TrainingError(
            f"no group with a signal is fresh enough for --staleness {settings.staleness} and "
            f"--base-version {settings.base_version}: the newest is of version {newest}"
        )


def require_known(settings: GrpoSettings, names: Sequence[str]) -> None:
    """Raise `TrainingError` for settings of a policy that is not among `names`."""
    options = {
        "--init-from": settings.init_from,
        "--policy-base": settings.bases,
        "--policy-rate": settings.rates,
    }
    for option, policies in options.items():
        if unknown := sorted(set(policies) - set(names)):
            raise TrainingError(
                f"{option} {unknown[0]}: no such policy is trained; policies: {', '.join(names)}"
            )


def claim(output: Path, settings: GrpoSettings, data: GrpoData, *, restart: bool) -> None:
    """Mark the folder as belonging to this training. Raises `TrainingError` if it belongs to
    another one."""
    path = output / SETTINGS
    existing_settings = claimed_settings(path, GrpoSettings) if path.exists() else None
    if existing_settings is not None and not restart:
        require_same_recipe(existing_settings, settings, output)
        return
    if existing_settings is not None:
        # The settings stay until they are replaced, so that the folder's owner is always known. The
        # report is removed first: as long as it exists, a training counts as finished.
        for name in (REPORT, PAGE, RUNS):
            (output / name).unlink(missing_ok=True)
        for name in (CHECKPOINTS, "curves", POLICIES, LAST_GOOD, LEARNED_TOKENS):
            shutil.rmtree(output / name, ignore_errors=True)
    else:
        # The runs are written first: after a kill they may be the only file.
        require_unused(output, but=(RUNS,))
    output.mkdir(parents=True, exist_ok=True)
    write_record(output / RUNS, RecordedRuns(runs=data.runs, rewards=data.rewards))
    write_record(path, settings)
