"""Measures what adapters solve of the held-out puzzles, by play in this process, so that no attack
on the workers can disturb it.

Completions are drawn at temperature 1, from the same seed for all adapters, and the first of each
is executed. Greedy play is a threshold: these small policies get over it between two rounds, all
puzzles at once, and then a curve tells nothing but the round in which that was. What a policy does
on average rises from round to round."""

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
    """Looks at adapters of one base, one after the other."""

    def __init__(self, base: Path, settings: CurveSettings) -> None:
        """Raises `TrainingError`."""
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
        """Return `1` for each held-out puzzle that is solved with the adapter in that folder, `0`
        for each that is not. Raises `TrainingError`."""
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
