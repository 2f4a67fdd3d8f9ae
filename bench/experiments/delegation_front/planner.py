"""The planner: an adapter of the big model that reads a question and writes a decision."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.agents.records import PolicyRef
from loopline.bench.experiments.delegation_front.cells import (
    BIG,
    DECISIONS,
    Answered,
    Decision,
    FrontSettings,
)
from loopline.bench.experiments.delegation_front.questions import Asked
from loopline.trainers.core.network import base_folder, load_base
from loopline.trainers.grpo.arms.supervised import Answer, imitate
from loopline.trainers.grpo.facts import PolicyFacts
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.losses import Objective
from loopline.trainers.grpo.pipeline import initial_policies
from loopline.trainers.grpo.sampling import DEVICE, Completion, Sampler
from loopline.trainers.grpo.settings import SHARED, GrpoSettings, InitialPolicy
from loopline.trainers.grpo.storing import folder_name, write_policies
from loopline.trainers.grpo.vectorized_rollout import TEMPERATURE, Prompter, sequence_of, slices
from loopline.workers.engines.local.adapter_base import weights_sha256

if TYPE_CHECKING:
    import torch

AGENT = "planner"
WRITTEN: dict[Decision, str] = {"big": "A", "small": "B", "parts": "C"}
"""Texts that the planner writes for its decisions: one vocabulary token each, so that all are
equally easy to learn."""
LIMIT = 2
"""Maximum tokens of a decision, including the end of the turn."""
ROWS = 64
"""Number of questions whose decisions are scored at once."""
HAND_OVER_SHARES = {True: 0.5, False: 0.2}
"""Shares of short questions (fewer words than the median) and of long ones that the demonstrations
hand over whole; the other two decisions share the rest evenly."""


class Planner:
    """Planner with random adapter weights from the seed, or with those of an earlier planner."""

    def __init__(self, settings: FrontSettings, seed: int, begins_from: Path | None = None) -> None:
        import torch

        torch.set_num_threads(1)
        begin = {} if begins_from is None else {SHARED: _initial(begins_from)}
        self.settings = settings
        self.grpo = GrpoSettings(
            base=BIG,
            base_sha256=weights_sha256(base_folder(BIG)),
            data_sha256="",
            init_from=begin,
            grouping="at-grpo",
            group_size=settings.group_size,
            # A dollar must cost λ on every question, so advantages are not scaled by a group's
            # spread.
            advantage="centred",
            truncated="keep",
            weights="lora",
            rank=settings.rank,
            learning_rate=settings.learning_rate,
            objective=Objective(entropy=settings.entropy),
            seed=seed,
        )
        loaded = load_base(BIG, device=DEVICE)
        self.policies = initial_policies(self.grpo, [SHARED], loaded)
        self.loaded = loaded
        self._prompter = Prompter(loaded)
        self._sampler = Sampler(loaded.model, loaded.end_ids, padding=0)
        self._written = {
            decision: (*loaded.codec.encode(WRITTEN[decision]), min(loaded.end_ids))
            for decision in DECISIONS
        }

    def write(self, folder: Path) -> None:
        """Write the planner to `folder`, in the form read by engines and by `begins_from`."""
        write_policies(self.policies, folder, lambda name: PolicyFacts.of(name, self.grpo, 0, ()))

    def decision_dollars(self, question: Asked) -> float:
        """US dollars for reading a question and writing the longest decision."""
        longest = max(map(len, self._written.values()))
        return self._dollars(len(self._prompter.ids(question.prompt)), longest)

    def imitate(self, questions: Sequence[Asked], rng: random.Random, rate: float) -> float:
        """Make one update on demonstrations for these questions; return the loss in nats per
        token."""
        answers: list[Answer] = [
            (self._prompter.ids(question.prompt), self._written[demonstrated(question, short, rng)])
            for question, short in zip(questions, shorter_half(questions), strict=True)
        ]
        return imitate(self.policies, answers, rate, "a step of the planner's start").loss

    def probabilities(self, questions: Sequence[Asked]) -> list[tuple[float, ...]]:
        """Return the probabilities of each question's decisions, at temperature 1."""
        import torch
        from torch.nn import functional

        network = self.policies.network
        network.whole.eval()
        table: list[tuple[float, ...]] = []
        for at in slices(range(len(questions)), ROWS):
            rows = [
                (self._prompter.ids(questions[number].prompt), self._written[decision])
                for number in at
                for decision in DECISIONS
            ]
            ids, learned = _padded(rows)
            with torch.no_grad():
                logits = network.learned_logits(ids, learned)
                scores = -functional.cross_entropy(logits, ids[:, 1:][learned], reduction="none")
            sums = torch.zeros(len(rows)).index_add(0, learned.nonzero()[:, 0], scores)
            chances = sums.exp().reshape(-1, len(DECISIONS)).tolist()
            table += [tuple(round(chance, 6) for chance in row) for row in chances]
        return table

    def draw(
        self, entries: Sequence[Answered], dollar_weight: float, version: int, seed: int
    ) -> tuple[list[Group], list[Decision | None]]:
        """Sample a group of decisions with rewards for each question, with the current weights;
        also return all samples, None for a text without a decision."""
        import torch

        prompts = [self._prompter.ids(entry.question.prompt) for entry in entries]
        sampled = self._sampler.sample(
            prompts, count=self.settings.group_size, limit=LIMIT, temperature=TEMPERATURE,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        policy = PolicyRef(name=SHARED, base=self.grpo.base, version=version)
        groups: list[Group] = []
        drawn: list[Decision | None] = []
        for entry, prompt, completions in zip(entries, prompts, sampled, strict=True):
            members: list[Member] = []
            for number, completion in enumerate(completions):
                decision = self._decision(completion)
                drawn.append(decision)
                paid = self._dollars(len(prompt), len(completion.ids))
                worth = reward(entry, decision, paid, dollar_weight)
                origin = (
                    f"{version}/{hashlib.sha256(entry.question.prompt.encode()).hexdigest()[:16]}"
                )
                sequence = sequence_of(prompt, completion, TEMPERATURE)
                members.append(Member(f"{origin}#{number}", worth, (sequence,)))
            key = GroupKey(entry.question.prompt, AGENT, 0, str(version))
            groups.append(Group(key, policy, tuple(members)))
        return groups, drawn

    def _decision(self, completion: Completion) -> Decision | None:
        text = self._prompter.text(completion).strip()
        return next((decision for decision in DECISIONS if WRITTEN[decision] == text), None)

    def _dollars(self, read: int, written: int) -> float:
        prompt, completion = self.settings.big_prices
        return (read * prompt + written * completion) / 1e6


def reward(
    entry: Answered, decision: Decision | None, decision_dollars: float, dollar_weight: float
) -> float:
    """Return the reward right − λ · dollars, including the cost of deciding. A text without a
    decision has no answer."""
    if decision is None:
        return -dollar_weight * decision_dollars
    answer = entry.by(decision)
    return float(answer.right) - dollar_weight * (decision_dollars + answer.dollars)


def shorter_half(questions: Sequence[Asked]) -> list[bool]:
    """Return, for each question, whether it has fewer words than the median."""
    counts = [len(question.prompt.split()) for question in questions]
    middle = sorted(counts)[len(counts) // 2]
    return [count < middle for count in counts]


def demonstrated(question: Asked, short: bool, rng: random.Random) -> Decision:
    """Return the demonstrated decision for a question: a guess by its length, and often a wrong
    one."""
    if rng.random() < HAND_OVER_SHARES[short]:
        return "small"
    return rng.choice(("big", "parts"))


def _initial(folder: Path) -> InitialPolicy:
    path = folder / folder_name(SHARED)
    return InitialPolicy(model=str(path), sha256=weights_sha256(path))


def _padded(rows: Sequence[Answer]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids [rows, length], padded on the right, and a mask of the scored ones, from the
    second id on."""
    import torch

    length = max(len(prompt) + len(written) for prompt, written in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    scored = torch.zeros(len(rows), length, dtype=torch.bool)
    for row, (prompt, written) in enumerate(rows):
        ids[row, : len(prompt) + len(written)] = torch.tensor([*prompt, *written])
        scored[row, len(prompt) : len(prompt) + len(written)] = True
    return ids, scored[:, 1:]


def mean(values: Sequence[float]) -> float:
    """Mean of the values; NaN without values."""
    return math.fsum(values) / len(values) if values else math.nan
