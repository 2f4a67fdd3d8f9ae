"""The start of every process of a loop: the learner with its initial policies, and the state that a
checkpoint adds to it."""

from __future__ import annotations

from loopline.trainers.core.checkpoints import CheckpointState
from loopline.trainers.core.memory import keep_freed_memory
from loopline.trainers.core.processes import Processes
from loopline.trainers.grpo.kept_ratios import KeptRatios
from loopline.trainers.grpo.learner import Learner
from loopline.trainers.grpo.loop.report import RoundFacts
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.workers.engines.torch.loading import LoadedModel


class LoopState(CheckpointState):
    """State in a checkpoint besides its tensors; its step is the last trained round."""

    settings: LoopSettings
    history: tuple[RoundFacts, ...]


def learner_of(
    settings: LoopSettings, loaded: LoadedModel, ratios: KeptRatios, processes: Processes
) -> Learner:
    """The learner that makes the steps in each process, starting from the initial policies."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(settings.grpo.threads)
    return Learner(initial_policies(settings.grpo, settings.trained, loaded, processes), ratios)
