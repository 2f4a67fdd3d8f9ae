"""AT-GRPO's rollouts in this process: many puzzles at once, with the policies being trained,
without a bus.

The rules are those of the workflow `pair`: an agent's K candidates answer one observation, each is
scored on a copy of the episode, and the best one is executed before the next agent observes
(Algorithm 1 of arXiv 2510.11062). A state of an agent is a group. There is one difference: among
equally good candidates, `pair` executes the one drawn first, and this module the one that ended
first, which is at most as long as the others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loopline.agents.environments.game import Agent, Episode, Scheme, Transition
from loopline.agents.environments.team_episode import TOOL
from loopline.agents.records import Message, PolicyRef
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.sampling import Completion, Sampler
from loopline.trainers.grpo.sequences import TokenSequence

if TYPE_CHECKING:
    import torch

    from loopline.workers.engines.torch.loading import LoadedModel

ROWS = 256
"""Maximum number of prompts completed at once."""
MOST_SAID = 5
_PLACE = "<>"


class Table(NamedTuple):
    """An episode with the id of its instance."""

    instance: str
    episode: Episode


@dataclass
class Prompter:
    """Renders the prompts that a gpu worker would build from an agent's observation."""

    loaded: LoadedModel
    _around: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        rendered = self.loaded.render([Message(role="user", content=_PLACE)], [])
        head, _, tail = rendered.partition(_PLACE)
        self._around = (head, tail)

    def ids(self, observation: str) -> list[int]:
        head, tail = self._around
        return self.loaded.codec.encode(f"{head}{observation}{tail}")

    def text(self, completion: Completion) -> str:
        """The text of a completion, without the token that ends the turn."""
        ids = completion.ids
        if ids[-1] in self.loaded.end_ids:
            ids = ids[:-1]
        return self.loaded.codec.decode(ids)


TEMPERATURE = 1.0
"""Temperature of all samples that are learned from: the policy is the whole softmax."""


@dataclass(frozen=True)
class Rules:
    """How candidates are drawn, at `TEMPERATURE`, and ranked."""

    candidates: int
    limit: int
    """Maximum number of tokens of one completion."""
    scheme: Scheme = "paper"


@dataclass(frozen=True)
class RolloutResult:
    """Results of a rollout."""

    groups: tuple[Group, ...]
    outcomes: str
    """`1` for each solved episode, `0` for each unsolved one, in order."""
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of unsolved episodes by kind of failure; empty for whole runs, which are only for
    training."""

    @property
    def solved(self) -> int:
        return self.outcomes.count("1")

    @property
    def episodes(self) -> int:
        return len(self.outcomes)

    @property
    def samples(self) -> int:
        """Number of completions that were drawn."""
        return sum(len(member.sequences) for group in self.groups for member in group.members)


def failure_of(episode: Episode, refused: int) -> str:
    """`refused` if actions were refused on the real state in more than half of the turns, otherwise
    `out of turns`."""
    return "refused" if 2 * refused > episode.turn else "out of turns"


@dataclass
class _Endings:
    """How episodes end, by their index."""

    failure: Callable[[Episode, int], str]
    solved: dict[int, bool] = field(default_factory=dict[int, bool])
    failures: Counter[str] = field(default_factory=Counter[str])
    _refused: Counter[int] = field(default_factory=Counter[int])

    def note(self, index: int, agent: Agent, applied: Transition, episode: Episode) -> None:
        """Count refused actions of the agent that acts on the real state; `episode` is the episode
        after the action."""
        if agent == episode.agents[-1]:
            self._refused[index] += bool(applied.observation.refusals)

    def end(self, index: int, episode: Episode) -> None:
        self.solved[index] = episode.verify().solved
        if not self.solved[index]:
            self.failures[self.failure(episode, self._refused[index])] += 1

    @property
    def outcomes(self) -> str:
        """Outcomes of all episodes, in order."""
        return outcomes_of(self.solved)


class _Trial(NamedTuple):
    """A candidate's text, and its effect on a copy of the episode."""

    after: Episode
    applied: Transition
    reward: float


class Played(Protocol):
    """A played episode."""

    @property
    def episode(self) -> Episode: ...


def turns(
    playing: Mapping[int, Played], prompter: Prompter, activate: Callable[[Agent], object]
) -> Iterator[tuple[Agent, Sequence[int], list[list[int]]]]:
    """Yield the agent to act next, at most `ROWS` of the episodes in which it acts, and their
    prompts, until `playing` is empty. The caller removes finished episodes.

    Episodes end only at the end of a turn. So all that continue are at the same agent, whose policy
    is activated once for all of them.
    """
    while playing:
        agent = next(iter(playing.values())).episode.agent
        activate(agent)
        for at in slices(list(playing), ROWS):
            yield agent, at, [prompter.ids(playing[index].episode.observe(agent)) for index in at]


def roll_out(
    tables: Sequence[Table],
    prompter: Prompter,
    sampler: Sampler,
    rules: Rules,
    policy: Callable[[Agent], PolicyRef],
    activate: Callable[[Agent], object],
    generator: torch.Generator,
    run: str,
    failure: Callable[[Episode, int], str] = failure_of,
) -> RolloutResult:
    """Play every episode from start to finish. `activate` puts an agent's policy into the sampler's
    model; `run` names the rollout in the origins of members; `failure` is as in `evaluate`."""
    groups: list[Group] = []
    endings = _Endings(failure)
    playing = dict(enumerate(tables))
    for agent, at, prompts in turns(playing, prompter, activate):
        sampled = sampler.sample(
            prompts,
            count=rules.candidates,
            limit=rules.limit,
            temperature=TEMPERATURE,
            generator=generator,
        )
        for index, prompt, completions in zip(at, prompts, sampled, strict=True):
            table = playing[index]
            trials = _try_candidates(table.episode, agent, completions, prompter, rules)
            rewards = [trial.reward for trial in trials]
            groups.append(_group(table, agent, prompt, completions, rewards, policy(agent), run))
            best = trials[rewards.index(max(rewards))]
            endings.note(index, agent, best.applied, best.after)
            playing[index] = table._replace(episode=best.after)
            if best.after.done:
                endings.end(index, playing.pop(index).episode)
    return RolloutResult(tuple(groups), endings.outcomes, dict(sorted(endings.failures.items())))


def outcomes_of(solved: Mapping[int, bool]) -> str:
    """Outcomes of episodes, in the order of their indices."""
    return "".join("1" if solved[index] else "0" for index in range(len(solved)))


@dataclass(frozen=True)
class EvaluationResult:
    """Greedy play of held-out puzzles."""

    outcomes: str
    """`1` for each solved puzzle, `0` for each unsolved one, in order."""
    failures: dict[str, int]
    """Number of unsolved puzzles by kind of failure."""
    proposals: int
    """Turns in which the tool agent proposed something."""
    agreed: int
    """Turns in which the plan agent did exactly what was proposed."""
    answers: dict[str, dict[str, int]]
    """Most frequent answers of each agent, with their counts."""


def evaluate(
    tables: Sequence[Table],
    prompter: Prompter,
    sampler: Sampler,
    limit: int,
    activate: Callable[[Agent], object] = lambda agent: None,
    failure: Callable[[Episode, int], str] = failure_of,
) -> EvaluationResult:
    """Draw one completion at temperature 0 for every observation. Plays the episodes in place.
    `failure(episode, refused)` returns the kind of failure of an unsolved episode in which
    `refused` actions on the real state were refused."""
    endings = _Endings(failure)
    proposed: dict[int, object] = {}
    proposals = agreed = 0
    answer_counts: dict[str, Counter[str]] = {}
    playing = dict(enumerate(tables))
    for agent, at, prompts in turns(playing, prompter, activate):
        completions = sampler.greedy(prompts, limit=limit)
        for index, completion in zip(at, completions, strict=True):
            episode = playing[index].episode
            text = prompter.text(completion)
            answer_counts.setdefault(agent, Counter())[text] += 1
            applied = episode.apply(agent, text)
            action = applied.observation.action
            if agent == TOOL:
                proposed[index] = action if any(action.values()) else None
            elif proposed.get(index) is not None:
                proposals += 1
                agreed += action == proposed[index]
            endings.note(index, agent, applied, episode)
            if episode.done:
                endings.end(index, playing.pop(index).episode)
    return EvaluationResult(
        endings.outcomes, dict(sorted(endings.failures.items())), proposals, agreed,
        {agent: dict(counts.most_common(MOST_SAID)) for agent, counts in answer_counts.items()},
    )  # fmt: skip


def _try_candidates(
    episode: Episode,
    agent: Agent,
    completions: Sequence[Completion],
    prompter: Prompter,
    rules: Rules,
) -> list[_Trial]:
    """Try each candidate on a copy; candidates with the same text have the same effect."""
    trials: dict[tuple[int, ...], _Trial] = {}
    for completion in completions:
        if completion.ids not in trials:
            after = episode.copy()
            applied = after.apply(agent, prompter.text(completion))
            total = applied.rewards.total(rules.scheme)
            trials[completion.ids] = _Trial(after, applied, total)
    return [trials[completion.ids] for completion in completions]


def _group(
    table: Table,
    agent: Agent,
    prompt: Sequence[int],
    completions: Sequence[Completion],
    rewards: Sequence[float],
    policy: PolicyRef,
    run: str,
) -> Group:
    turn = len(table.episode.actions)
    origin = f"{run}/{table.instance}/{turn}/{agent}"
    state = hashlib.sha256(repr(prompt).encode()).hexdigest()
    members = [
        Member(f"{origin}#{number}", reward, (sequence_of(prompt, completion, TEMPERATURE),))
        for number, (completion, reward) in enumerate(zip(completions, rewards, strict=True))
    ]
    return Group(GroupKey(table.instance, agent, turn, state), policy, tuple(members))


def sequence_of(prompt: Sequence[int], completion: Completion, temperature: float) -> TokenSequence:
    """A prompt and its sampled completion as one row to learn from."""
    read, written = len(prompt), len(completion.ids)
    return TokenSequence(
        ids=(*prompt, *completion.ids),
        learned=(*[False] * read, *[True] * written),
        logprobs=(*[0.0] * read, *completion.logprobs),
        temperature=temperature,
        truncated=completion.truncated,
    )


def slices(every: Sequence[int], size: int) -> list[Sequence[int]]:
    """Slices of at most `size` elements."""
    return [every[at : at + size] for at in range(0, len(every), size)]
