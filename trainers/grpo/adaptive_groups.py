"""Groups whose observations were sampled adaptively, until there was enough to learn from:
Reinforce-Ada (Xiong et al. 2025, arXiv:2510.04996; `loopline.agents.roles.pair.adaptive_sampling`
draws the samples).

The trainer learns from K of the samples, with successes and failures as balanced as possible.
Baseline and deviation are computed over all samples, so that the selection does not bias them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from loopline.agents.roles.pair.adaptive_sampling import AdaptiveSampling
from loopline.trainers.data.json_files import Unreadable
from loopline.trainers.data.samples import AnyRunFacts

NO_SUCCESS = "candidate whose rewards do not say whether it is a success"
BAD_OPTIONS = "run whose adaptive sampling can't be read"


def adaptive_of(run: AnyRunFacts) -> AdaptiveSampling | None:
    """The rule by which a recorded run was sampled; None if each of its steps has K samples. Raises
    `Unreadable`."""
    option = run.options.get("adaptive")
    if option is None:
        return None
    try:
        return AdaptiveSampling.model_validate(option)
    except ValidationError as error:
        raise Unreadable(BAD_OPTIONS, error.errors(include_url=False)[0]["msg"]) from error


def succeeds(parts: Mapping[str, float], adaptive: AdaptiveSampling) -> bool:
    """Whether a candidate with these reward parts counted as a success. Raises `Unreadable`."""
    try:
        return adaptive.succeeds(parts)
    except KeyError as error:
        raise Unreadable(NO_SUCCESS, f"no {error.args[0]}") from error


def select_samples(successes: Sequence[bool], size: int, seed: str) -> tuple[int, ...]:
    """The K samples to train on: half successes and half failures, or all samples of the rarer kind
    if it has fewer. Indices in order; the same for the same seed."""
    rng = random.Random(seed)
    kinds = (
        [at for at, good in enumerate(successes) if good],
        [at for at, good in enumerate(successes) if not good],
    )
    for kind in kinds:
        rng.shuffle(kind)
    good = min(len(kinds[0]), max((size + 1) // 2, size - len(kinds[1])))
    return tuple(sorted(kinds[0][:good] + kinds[1][: size - good]))
