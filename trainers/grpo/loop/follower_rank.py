"""Every process of a loop except the first: it computes its share of each step."""

from __future__ import annotations

from pathlib import Path

from loopline.trainers.core.checkpoints import require_same_recipe
from loopline.trainers.core.interruption import Interruption, deferred_interrupt
from loopline.trainers.core.json_records import find_record
from loopline.trainers.core.network import load_base
from loopline.trainers.core.processes import unshared_folder_error
from loopline.trainers.grpo.kept_ratios import KeptRatios
from loopline.trainers.grpo.loop.leader_channel import (
    End,
    Gather,
    LeaderChannel,
    LeaderFailed,
    Start,
    Step,
    Word,
)
from loopline.trainers.grpo.loop.loop_state import LoopState, learner_of
from loopline.trainers.grpo.loop.run_directory import Claim
from loopline.trainers.grpo.loop.settings import LoopSettings
from loopline.trainers.grpo.pipeline import CHECKPOINTS
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.storing import restore, write_policies


def follow(grpo: GrpoSettings, output: Path, keep_ratios: int, channel: LeaderChannel) -> None:
    """Take part in the loop until the first process has ended. `grpo` contains the settings of this
    process's own command line. Raises `LeaderFailed` if the first process ended with an error,
    KeyboardInterrupt if any process was asked to stop, and `TrainingError` if this one has another
    base or sees another `output`."""
    with deferred_interrupt() as interruption:
        word = channel.wait_for_word(interruption)
        if isinstance(word, Start):
            settings = _read_claimed_settings(word, grpo, output, channel)
            word = _take_part(settings, output, keep_ratios, channel, interruption)
    if not isinstance(word, End) or word.exit_code == 0:
        return
    if word.exit_code == 130:
        raise KeyboardInterrupt
    raise LeaderFailed(channel.processes, word.exit_code)


def _read_claimed_settings(
    start: Start, grpo: GrpoSettings, output: Path, channel: LeaderChannel
) -> LoopSettings:
    """The settings that the first process has written into the folder."""
    path = output / "loop.json"
    claim = find_record(path, Claim)
    if claim is None or claim.id != start.training:
        raise unshared_folder_error(output, channel.processes)
    require_same_recipe(claim.settings.grpo, grpo, output)
    return claim.settings


def _take_part(
    settings: LoopSettings,
    output: Path,
    keep_ratios: int,
    channel: LeaderChannel,
    interruption: Interruption,
) -> Word:
    """Take part in every step; returns the word that follows the last one."""
    loaded = load_base(settings.grpo.base, settings.grpo.base_precision)
    ratios = KeptRatios(output, keep_ratios, channel.processes.index)
    learner = learner_of(settings, loaded, ratios, channel.processes)
    state = restore(output / CHECKPOINTS, LoopState, learner.policies)
    trained = 0 if state is None else state.step
    while isinstance(word := channel.wait_for_word(interruption), Step | Gather):
        if isinstance(word, Gather):
            _give_parts(word, learner.policies, output)
            continue
        if word.round != trained + 1:
            raise unshared_folder_error(output, channel.processes)
        learner.step(word.batch, settings.rate_of(word.round))
        trained = word.round
        ratios.write(trained)
        channel.processes.wait()
    return word


def _give_parts(word: Gather, policies: Policies, output: Path) -> None:
    """Contribute shards to the files of the first process, in the order in which it gathers
    them."""
    if word.what == "checkpoint":
        policies.tensors()
    else:
        # This process does not use the folder or the facts.
        write_policies(policies, output, lambda policy: policies.settings)
