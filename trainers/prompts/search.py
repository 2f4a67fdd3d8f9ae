"""The order of a search: rounds, proposals and the comparison, for one prompt after the other.

Only the results of runs decide, in an order that does not depend on when the runs ended. So an
interrupted search continues as it would have without the interruption: it requests the same runs,
and finds the ended ones in the log.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loopline.agents.errors import InvalidPrompt
from loopline.agents.records import Outcome
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.data.questions import CHECKERS, Question, Questions
from loopline.trainers.errors import TrainingError
from loopline.trainers.prompts.candidates import CURRENT, Candidate
from loopline.trainers.prompts.playing import FinishedRun, Player, RunListener
from loopline.trainers.prompts.proposals import EvaluatedCandidate, Failure, read_proposal, request
from loopline.trainers.prompts.report import (
    CandidateFacts,
    Comparison,
    PromptFacts,
    RejectedProposal,
    Report,
    compare_prompts,
    rate,
)
from loopline.trainers.prompts.settings import SearchSettings


class Round(NamedTuple):
    """One round."""

    arms: int
    """Candidates that play."""
    questions: int
    """New questions for each of them."""


def rounds(arms: int, runs: int) -> tuple[Round, ...]:
    """The rounds for `arms` candidates with at most `runs` runs; none for one candidate.

    Raises ValueError if a round would have no question.
    """
    count = math.ceil(math.log2(arms)) if arms > 1 else 0
    if runs < arms * count:
        raise ValueError(f"{arms} candidates need at least {arms * count} runs; got {runs}")
    plan: list[Round] = []
    remaining = arms
    for _ in range(count):
        plan.append(Round(remaining, runs // (count * remaining)))
        remaining = survivor_count(remaining)
    return tuple(plan)


def survivor_count(arms: int) -> int:
    """Number of candidates, out of `arms`, that continue."""
    return math.ceil(arms / 2)


def rank_candidates(solved: Mapping[str, int]) -> list[str]:
    """Candidates from the best to the worst, by solved questions out of the same number. Among
    equals the earlier one comes first, so that only a better prompt displaces the current one."""
    return sorted(solved, key=lambda label: -solved[label])


_PROPOSED = re.compile(r"proposal-\d+")


@dataclass
class Arm:
    """A candidate and the runs that it played."""

    candidate: Candidate
    played: list[FinishedRun] = field(default_factory=list[FinishedRun])
    left_in_round: int | None = None

    @property
    def solved(self) -> int:
        return sum(run.solved for run in self.played)

    @property
    def tokens_per_run(self) -> float:
        return sum(run.tokens for run in self.played) / max(1, len(self.played))


RoundListener = Callable[[str, int, Sequence[Arm]], None]
"""Callback that receives a prompt, the number of runs that its search has played, and the
candidates of a round."""


@dataclass(frozen=True)
class SearchResult:
    """Results of a search."""

    report: Report
    adopted: dict[str, Candidate]
    """Adopted replacement of each prompt."""
    proposed: dict[str, tuple[Candidate, ...]]
    """Candidates that models wrote for each prompt."""


def questions_needed(settings: SearchSettings) -> int:
    """Training questions that the longest search for one prompt needs. Raises `TrainingError` if
    there are too few runs for the candidates."""
    most = 0
    for name, candidates in settings.prompts.items():
        try:
            plan = rounds(len(candidates) + settings.propose, settings.runs)
        except ValueError as error:
            raise TrainingError(f"{name}: --runs: {error}") from error
        most = max(most, sum(round_plan.questions for round_plan in plan))
    return most


class Search:
    """One search; `files` are the deployment's own prompt files."""

    def __init__(
        self,
        settings: SearchSettings,
        questions: Questions,
        candidates: Mapping[str, Sequence[Candidate]],
        files: Mapping[str, str],
        player: Player,
        watch: RunListener,
        on_round: RoundListener = lambda prompt, runs, arms: None,
    ) -> None:
        self._settings = settings
        self._questions = questions
        self._candidates = candidates
        self._files = dict(files)
        self._player = player
        self._watch = watch
        self._on_round = on_round
        self._adopted: dict[str, Candidate] = {}
        self._proposed: dict[str, tuple[Candidate, ...]] = {}

    async def run(self) -> SearchResult:
        """Run the search. Raises `BusUnavailable`, and `TrainingError` if the deployment answers
        nothing."""
        facts = [await self._prompt(name) for name in self._settings.prompts]
        report = Report(
            settings=self._settings,
            checker=CHECKERS[self._questions.checker],
            prompts=tuple(facts),
            runs=self._player.runs,
            tokens=self._player.tokens,
            micro_dollars=self._player.micro_dollars,
        )
        return SearchResult(report, self._adopted, self._proposed)

    async def _prompt(self, name: str) -> PromptFacts:
        settings = self._settings
        arms = {entry.label: Arm(entry) for entry in self._candidates[name]}
        plan = rounds(len(arms) + settings.propose, settings.runs)
        self._watch.say(_plan_message(name, len(arms), settings))
        remaining, refused, stopped = list(arms), list[RejectedProposal](), False
        begin = 0
        for number, (_, questions) in enumerate(plan, start=1):
            if number > 1 and len(remaining) == 1:
                # If no proposal became a candidate, there is nothing to compare with.
                break
            round_questions = self._questions.train[begin : begin + questions]
            begin += questions
            if not self._can_afford(len(remaining) * len(round_questions)):
                stopped = True
                break
            await asyncio.gather(*(self._ask(arms[label], round_questions) for label in remaining))
            if number == 1:
                _require_answers(arms[CURRENT].played)
                refused = await self._proposals(name, arms, round_questions)
                if _is_prompt_unused(arms):
                    self._watch.say(
                        f"{name}: no candidate changed a single token of any run: is the prompt "
                        "used in these runs, and does the model's chat template show it?"
                    )
                remaining = list(arms)
            runs = sum(len(arm.played) for arm in arms.values())
            self._on_round(name, runs, [arms[label] for label in remaining])
            order = rank_candidates({label: arms[label].solved for label in remaining})
            # Failed proposals leave fewer candidates than planned.
            for label in order[survivor_count(len(order)) :]:
                arms[label].left_in_round = number
            remaining = [label for label in remaining if arms[label].left_in_round is None]
            best = arms[order[0]]
            self._watch.say(
                f"{name}, round {number}: {order[0]} leads with {best.solved} of "
                f"{len(best.played)}; {format_count(len(remaining), 'candidate')} left"
            )
        order = rank_candidates({label: arms[label].solved for label in remaining})
        winner = arms[order[0]]
        comparison, why = await self._compare_held_out(winner, arms[CURRENT], stopped=stopped)
        alpha = settings.alpha / len(settings.prompts)
        better = comparison is not None and comparison.better(alpha)
        if comparison is not None:
            why = f"{'better' if better else 'not better for sure'} on the held-out questions"
        if better:
            self._adopted[name] = winner.candidate
            self._files = self._prompt_files_with(winner.candidate)
        self._watch.say(f"{name}: {winner.candidate.label if better else CURRENT} ({why})")
        return PromptFacts(
            prompt=name,
            rounds=tuple((entry.arms, entry.questions) for entry in plan),
            candidates=tuple(map(_facts, _by_success(arms.values()))),
            refused=tuple(refused),
            winner=winner.candidate.label,
            alpha=alpha,
            comparison=comparison,
            adopted=winner.candidate.hash if better else None,
            why=why,
        )

    async def _ask(self, arm: Arm, questions: Sequence[Question]) -> None:
        self._watch.planned(len(questions))
        arm.played += await self._player.play(self._prompt_files_with(arm.candidate), questions)

    async def _proposals(
        self, name: str, arms: dict[str, Arm], questions: Sequence[Question]
    ) -> list[RejectedProposal]:
        """Let the proposer write, each time from the best so far, and measure its proposals."""
        refused: list[RejectedProposal] = []
        policy, written = self._settings.proposer, list[Candidate]()
        # A variant may have such a name from an earlier search.
        named = [int(label.rpartition("-")[2]) for label in arms if _PROPOSED.fullmatch(label)]
        for number in range(1, self._settings.propose + 1):
            assert policy is not None
            order = rank_candidates({label: arm.solved for label, arm in arms.items()})
            best = arms[order[0]]
            if best.solved == len(questions):
                self._watch.say(f"{name}: {order[0]} solved everything, so nothing is proposed")
                break
            if not self._can_afford(1 + len(questions)):
                break
            label = f"proposal-{max(named, default=0) + number}"
            self._watch.planned(1)
            answer = await self._player.propose(
                name,
                number,
                policy,
                _request(best, [arms[arm_label] for arm_label in order[1:]], questions),
            )
            try:
                candidate = _parse_proposal(answer, label, best, arms)
            except InvalidPrompt as error:
                refused.append(RejectedProposal(label=label, why=str(error)))
                self._watch.say(f"{name}: {label} is not a candidate: {error}")
                continue
            written.append(candidate)
            arms[label] = Arm(candidate)
            await self._ask(arms[label], questions)
            self._watch.say(
                f"{name}: {label} of {answer.by} solved {arms[label].solved} of {len(questions)}"
            )
        self._proposed[name] = tuple(written)
        return refused

    async def _compare_held_out(
        self, winner: Arm, current: Arm, *, stopped: bool
    ) -> tuple[Comparison | None, str]:
        if winner is current:
            return None, "no candidate solved more" + (
                " before the tokens were used up" if stopped else ""
            )
        questions = self._questions.held_out
        if not self._can_afford(0):
            return None, "the tokens do not suffice for the comparison on held-out questions"
        self._watch.planned(2 * len(questions))
        winner_runs, current_runs = await asyncio.gather(
            self._player.play(self._prompt_files_with(winner.candidate), questions),
            self._player.play(self._prompt_files_with(current.candidate), questions),
        )
        tokens = (_mean_tokens(winner_runs), _mean_tokens(current_runs))
        return (
            compare_prompts(
                [run.solved for run in winner_runs],
                [run.solved for run in current_runs],
                tokens,
                self._settings.seed,
            ),
            "",
        )

    def _prompt_files_with(self, candidate: Candidate) -> dict[str, str]:
        """The prompt files of a run with this candidate."""
        if candidate.content is None:
            return dict(self._files)
        return {**self._files, candidate.prompt.file: candidate.content}

    def _can_afford(self, runs: int) -> bool:
        """Whether `runs` further runs leave tokens for the comparison, by the usage of runs so
        far."""
        budget, player = self._settings.tokens, self._player
        if budget is None:
            return True
        tokens_per_run = player.tokens / max(1, player.runs)
        return player.tokens + tokens_per_run * (runs + 2 * len(self._questions.held_out)) <= budget


def _plan_message(name: str, candidates: int, settings: SearchSettings) -> str:
    proposals = f" and {format_count(settings.propose, 'proposal')}" if settings.propose else ""
    tokens = f", {settings.tokens:,} tokens over all" if settings.tokens else ""
    return (
        f"{name}: {format_count(candidates, 'candidate')}{proposals}, at most "
        f"{format_count(settings.runs, 'run')} of search and {2 * settings.held_out:,} of "
        "comparison"
        f"{tokens}"
    )


def _require_answers(played: Sequence[FinishedRun]) -> None:
    """Raise `TrainingError` if every run of the current prompt ended in an error, which contains no
    information on any prompt."""
    if played and all(run.outcome in (Outcome.ERROR, Outcome.DEADLINE) for run in played):
        first = played[0]
        raise TrainingError(
            f"all {len(played)} runs of the current prompt ended as {first.outcome} "
            f"({first.reason or 'no reason'}), so there is nothing to compare. See `runtime runs "
            f"show {first.run_id}`, fix the deployment, and start again in another folder"
        )


def _is_prompt_unused(arms: Mapping[str, Arm]) -> bool:
    """Whether no result depends on the prompt: not even the number of tokens."""
    facts = [[(run.solved, run.tokens) for run in arm.played] for arm in arms.values()]
    return len(facts) > 1 and all(row == facts[0] for row in facts)


def _request(best: Arm, others: Sequence[Arm], questions: Sequence[Question]) -> str:
    failures = [
        Failure(question.task.prompt, played.answer, played.fault)
        for question, played in zip(questions, best.played, strict=True)
        if not played.solved
    ]
    return request(
        _evaluated_candidate(best), [_evaluated_candidate(arm) for arm in others], failures
    )


def _evaluated_candidate(arm: Arm) -> EvaluatedCandidate:
    return EvaluatedCandidate(arm.candidate.prompt.text, arm.solved, len(arm.played))


def _parse_proposal(
    answer: FinishedRun, label: str, best: Arm, arms: Mapping[str, Arm]
) -> Candidate:
    if answer.outcome is not Outcome.ANSWERED:
        raise InvalidPrompt(f"the proposer's run ended as {answer.outcome}: {answer.reason}")
    return read_proposal(
        answer.answer,
        of=best.candidate.prompt,
        label=label,
        origin=f"proposed by {answer.by}",
        candidates=[arm.candidate for arm in arms.values()],
        cut=answer.cut,
    )


def _by_success(arms: Collection[Arm]) -> list[Arm]:
    """Candidates by the number of rounds they lasted, longest first; among equals by solved
    questions."""
    last = 1 + max((arm.left_in_round or 0 for arm in arms), default=0)
    return sorted(arms, key=lambda arm: (-(arm.left_in_round or last), -arm.solved))


def _facts(arm: Arm) -> CandidateFacts:
    prompt = arm.candidate.prompt
    return CandidateFacts(
        label=arm.candidate.label,
        origin=arm.candidate.origin,
        version=prompt.version,
        hash=prompt.hash,
        solved=arm.solved,
        questions=len(arm.played),
        rate=rate(arm.solved, len(arm.played)),
        tokens_per_run=arm.tokens_per_run,
        left_in_round=arm.left_in_round,
    )


def _mean_tokens(played: Sequence[FinishedRun]) -> float:
    return sum(run.tokens for run in played) / max(1, len(played))
