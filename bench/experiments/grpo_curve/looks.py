"""Measures adapters on the held-out puzzles by playing in this process, so that no attack on the
workers can interfere.

Completions are drawn at temperature 1, with the same seed for all adapters, and the first of each
is executed. Greedy play has a threshold effect: these small policies jump between two rounds on all
puzzles at once, and a curve then shows only the round of the jump. Average behaviour improves from
round to round."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.records import PolicyRef
from loopline.bench.experiments.grpo_curve.settings import CurveSettings
from loopline.trainers.core.network import load_base
from loopline.trainers.grpo.init_from import initial_weights
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.sampling import DEVICE, Sampler
from loopline.trainers.grpo.settings import SHARED, GrpoSettings, InitialPolicy
from loopline.trainers.grpo.vectorized_rollout import Prompter, Rules, roll_out
from loopline.workers.engines.local.adapter_base import weights_sha256


class Measurement:
    """Measures adapters of one base, one after another."""

    def __init__(self, base: Path, settings: CurveSettings) -> None:
        """Load the base. Raises `TrainingError`."""
        import torch

        torch.set_num_threads(1)
        self._settings = settings
        self._grpo = GrpoSettings(
            base=str(base), base_sha256=weights_sha256(base), data_sha256="", weights="lora",
            rank=settings.reinforced.rank,
        )  # fmt: skip
        loaded = load_base(str(base), device=DEVICE)
        self._network = initial_policies(self._grpo, (SHARED,), loaded).network
        self._prompter = Prompter(loaded)
        self._sampler = Sampler(loaded.model, loaded.end_ids, padding=0)

    def outcomes(self, adapter: Path) -> str:
        """Return `1` for each held-out puzzle solved with the adapter in this folder, and `0` for
        every other. Raises `TrainingError`."""
        import torch

        begin = InitialPolicy(model=str(adapter), sha256=weights_sha256(adapter))
        grpo = self._grpo.model_copy(update={"init_from": {SHARED: begin}})
        begins = initial_weights({SHARED: self._network}, grpo)
        Policies(self._network, (SHARED,), grpo, begins).activate(SHARED)
        settings = self._settings
        return roll_out(
            settings.game.tables(Split.TEST, settings.test_seed, settings.held_out),
            self._prompter,
            self._sampler,
            Rules(candidates=1, limit=settings.reinforced.limit),
            lambda agent: PolicyRef(name=SHARED, base=grpo.base, version=0),
            lambda agent: None,
            torch.Generator().manual_seed(settings.test_seed),
            run="look",
        ).outcomes
