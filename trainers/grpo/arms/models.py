"""An arm's policies: their initial weights, and the written ones.

OUTPUT/seed-1/beginning/                     random weights
OUTPUT/seed-1/at-grpo/model/                 an arm with one policy: the model
OUTPUT/seed-1/at-grpo-per-role/model/<agent>/    an arm with several: models or adapters
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopline.agents.environments.team_episode import AGENTS
from loopline.trainers.core.models import export_model, new_model
from loopline.trainers.core.network import load_base
from loopline.trainers.core.tokenizer import SPECIAL, build_tokenizer
from loopline.trainers.grpo.arms.reinforced import grpo_settings
from loopline.trainers.grpo.arms.results import Arm
from loopline.trainers.grpo.arms.settings import ArmSettings
from loopline.trainers.grpo.arms.training import NetworkSize
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.policies import Policies
from loopline.trainers.grpo.sampling import DEVICE, Sampler
from loopline.trainers.grpo.settings import SHARED, GrpoSettings, InitialPolicy
from loopline.trainers.grpo.vectorized_rollout import Prompter
from loopline.workers.atomic_files import atomic_folder
from loopline.workers.engines.local.adapter_base import FACTS, weights_sha256

_BYTES = 256


def write_initial_model(size: NetworkSize, pieces: Sequence[str], seed: int, folder: Path) -> None:
    """Write a model folder with random weights of that seed, complete or not at all; if another
    process has written it meanwhile, that equal folder stays. `pieces` are one token each."""
    import torch

    tokenizer = build_tokenizer((), len(SPECIAL) + _BYTES + len(pieces), pieces)
    torch.manual_seed(seed)
    network = new_model(size, tokenizer.get_vocab_size())
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, size.spread)
    try:
        with atomic_folder(folder) as partial:
            export_model(network, tokenizer, partial, context=size.context)
    except OSError:
        if not folder.exists():
            raise


MODEL = "model"


@dataclass(frozen=True)
class Playing:
    """Policies, and everything needed to play them."""

    grpo: GrpoSettings
    policies: Policies
    prompter: Prompter
    sampler: Sampler
    base: Path
    """Folder of the model that was loaded."""

    def activate(self, agent: str) -> object:
        """Load the policy of an agent into the network."""
        return self.policies.activate(self.grpo.policy_of(agent))


def untrained_policies(arm: Arm, output: Path, settings: ArmSettings) -> Playing:
    """The policies of an arm that has learned nothing. Raises `TrainingError`."""
    base = base_of(arm, output, settings)
    return _playing(_settings(arm, base, settings), arm, base)


def load_policies(arm: Arm, output: Path, settings: ArmSettings) -> Playing:
    """The policies of an arm as written by `write`, rounding included. Raises `TrainingError`."""
    base, model = base_of(arm, output, settings), arm.folder(output) / MODEL
    grpo = _settings(arm, base, settings)
    begins: dict[str, InitialPolicy] = {}
    for name in _names(grpo, arm):
        folder = _folder(model, name)
        begins[name] = InitialPolicy(model=str(folder), sha256=weights_sha256(folder))
    return _playing(grpo.model_copy(update={"init_from": begins}), arm, base)


def write(arm: Arm, output: Path, playing: Playing) -> None:
    """Write all of an arm's policies in the engines' format, complete or not at all."""
    with atomic_folder(arm.folder(output) / MODEL, replace=True) as partial:
        for name in playing.policies.names:
            policy_folder = _folder(partial, name)
            policy_folder.mkdir(parents=True, exist_ok=True)
            playing.policies.activate(name)
            playing.policies.network.write(policy_folder, playing.base)
            if playing.grpo.weights == "lora":
                facts = PolicyFacts.of(name, playing.grpo, 0, ())
                (policy_folder / FACTS).write_text(facts.model_dump_json(indent=1) + "\n")


def base_of(arm: Arm, output: Path, settings: ArmSettings) -> Path:
    """Folder of the model that an arm starts from."""
    if arm.begins is not None:
        return arm.begins.folder(output) / MODEL
    folder = output / f"seed-{arm.seed}" / "beginning"
    if not folder.exists():
        write_initial_model(settings.network, settings.game.pieces, arm.seed, folder)
    return folder


def _settings(arm: Arm, base: Path, settings: ArmSettings) -> GrpoSettings:
    return grpo_settings(settings, arm.what, weights_sha256(base), arm.seed)


def _names(grpo: GrpoSettings, arm: Arm) -> list[str]:
    return [SHARED] if grpo.policies == SHARED else list(arm.what.team or AGENTS)


def _folder(model: Path, name: str) -> Path:
    return model if name == SHARED else model / name


def _playing(grpo: GrpoSettings, arm: Arm, base: Path) -> Playing:
    loaded = load_base(str(base), device=DEVICE)
    policies = initial_policies(grpo, _names(grpo, arm), loaded)
    sampler = Sampler(loaded.model, loaded.end_ids, padding=0)
    return Playing(grpo, policies, Prompter(loaded), sampler, base)
