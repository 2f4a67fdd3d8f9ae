"""The rules and rewards of a word problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from loopline.agents.environments.game import (
    Agent,
    Refusal,
    Rewards,
    Verdict,
    progress_parts,
    weighted_parts,
)
from loopline.agents.environments.marked_answers import read_calls
from loopline.agents.environments.team_episode import PLAN, Step, TeamEpisode
from loopline.agents.environments.tool_language import OPERAND, ToolFunction
from loopline.agents.environments.word_problem_team.instance import (
    WordProblemInstance,
    WordProblemSetting,
)
from loopline.agents.environments.word_problem_team.numbers import name_numbers
from loopline.agents.environments.word_problem_team.rules import (
    Item,
    Items,
    Work,
    apply_item,
    equation_key,
    solution_equation_count,
    with_dependencies,
)
from loopline.agents.environments.word_problem_team.tools import functions
from loopline.agents.environments.word_problem_team.verification import check_work
from loopline.agents.records import JsonObject

_MOST_ITEMS = 16
_NOTHING = "skip()"


@dataclass(frozen=True)
class WordProblemPuzzle:
    """Rules of a word problem: see `loopline.agents.environments.team_episode.Puzzle`. An action
    keeps calculations, or gives the answer, which is final. A kept calculation must be in this
    turn's proposal. The answer may be a number without a calculation, so that a plan agent alone
    can play."""

    instance: WordProblemInstance

    @property
    def setting(self) -> WordProblemSetting:
        return self.instance.setting

    @property
    def functions(self) -> Mapping[str, ToolFunction[tuple[Work, Items]]]:
        return self._functions

    @cached_property
    def _functions(self) -> Mapping[str, ToolFunction[tuple[Work, Items]]]:
        return functions(self.instance)

    def start(self) -> Work:
        return Work()

    def nothing(self) -> Items:
        return ()

    def read(self, text: str, proposed: Items | None) -> Items | Refusal:
        """Read `keep(r1)`, `answer(r1)`, `answer(72)` and `skip()`, which does nothing."""
        calls = read_calls(text, _MOST_ITEMS)
        if isinstance(calls, Refusal):
            return calls
        # A program's proposal has the form of an answer; such an item has no calculation.
        works = [item.works[-1] for item in proposed or () if item.works]
        items: list[Item] = []
        for call in calls:
            if str(call) == _NOTHING:
                continue
            (of,) = call.arguments if len(call.arguments) == 1 else ("",)
            if call.name not in ("keep", "answer") or not OPERAND.fullmatch(of):
                return Refusal("unknown_item", f"{str(call)[:40]!r}")
            items.append(Item(call.name, of, with_dependencies(of, works)))
        return tuple(items)

    def perform(self, state: Work, action: Items) -> Step[Work, Items]:
        work, legal, refusals = state, 0, list[Refusal]()
        for item in action:
            after = apply_item(work, item)
            if isinstance(after, Refusal):
                refusals.append(after)
            else:
                work, legal = after, legal + 1
        return Step(state, action, work, legal, len(refusals), tuple(refusals))

    def solved(self, state: Work) -> bool:
        """Whether the answer is right. A tool agent alone can answer only by a program; with calls,
        the last result counts."""
        if PLAN in self.setting.team or state.answer is not None:
            return state.answer == self.instance.answer
        return bool(state.calculations) and state.calculations[-1].result == self.instance.answer

    def over(self, state: Work) -> bool:
        return state.answer is not None

    def rewards(self, agent: Agent, step: Step[Work, Items], *, last: bool) -> Rewards:
        """Return rewards as in the paper's puzzles; dense ones as in PettingLLMs' mathematics:

        * team: 1 for the right answer
        * plan agent: .1 format, .1 share of legal items, .8 for the right answer or, before an
          answer, for the share of newly kept equations that are in the solution
        * tool agent: .1 format, .1 share of calls that worked, .8 for the share of proposed
          equations that are in the solution or, if a program proposes an answer, for the right one
        * dense: plan agent 2 for the right answer; tool agent 1 if its last result, or its
          program's answer, is the answer, 0 for another one, −1 for none
        * sparse: 1 for the right answer; for the tool agent also if its last result is the answer,
          since no call can answer
        * progress: share of the solution's equations that are kept, with the right answer as one
          more. A kept equation whose result is given as a wrong answer does not count: if it cost
          more, a team that is mostly wrong would learn never to answer; if less, to answer too
          early. In an action with several calculations, each one outside the solution costs the
          value of an equation: otherwise trying all four operators at once would earn the same as
          the right one
        """
        solved = float(self.solved(step.after))
        read = 0.0 if step.action is None else 1.0
        attempts = step.legal + step.illegal
        sound = self._solution_share(step) if step.after.answer is None else solved
        would = solved
        if agent == PLAN:
            legal = step.legal / attempts if attempts else 0.0
            local = {"format": (0.1, read), "legal": (0.1, legal), "sound": (0.8, sound)}
            dense = {"right": (2.0, solved)}
        else:
            local = {"format": (0.1, read), "executed": (0.1, step.worked), "sound": (0.8, sound)}
            answer_reward = self._answer_score(step)
            dense = {"right": (1.0, answer_reward)}
            would = max(solved, answer_reward)
        parts = (
            *weighted_parts("team", {"solved": (1.0, solved)}),
            *weighted_parts("local", local),
            *weighted_parts("dense", dense),
            *weighted_parts("sparse", {"solved": (1.0, would)}),
            *progress_parts(self._completion(step.before), self._completion(step.after), read),
            *weighted_parts("progress", {"stray": (-1.0, self._stray_share(step))}),
        )
        return Rewards(parts, mask=read)

    def about(self) -> str:
        named = " n1, n2, … name its numbers, r1, r2, … results." if self.setting.named else ""
        return (
            "A word problem. It is worked out one calculation after the other, in whole numbers "
            f"above 0, and answered once.{named}"
        )

    def drawing(self, state: Work) -> str:
        text = self.instance.text
        lines = [f"Problem: {name_numbers(text) if self.setting.named else text}"]
        lines += map(str, state.calculations)
        if state.answer is not None:
            lines.append(f"Answered: {state.answer}")
        return "\n".join(lines)

    def answer_form(self) -> str:
        return (
            "End with #### [item, item, ...]. An item is keep(result), for a result that was "
            "calculated in this turn; answer(result) or answer(number), which is final; or skip()."
        )

    def show(self, action: Items) -> str:
        return f"[{', '.join(map(str, action)) or _NOTHING}]"

    def as_json(self, action: Items) -> JsonObject:
        """Return the action as JSON. A name without a calculation stays as written."""
        return {
            "keep": [str(item.works[-1]) if item.works else item.of for item in action
                     if item.verb == "keep"],
            "answer": [str(item.works[-1]) if item.works else item.of for item in action
                       if item.verb == "answer"],
        }  # fmt: skip

    def items(self) -> list[str]:
        return [f"answer({number})" for number in range(1, 61)]

    @property
    def largest(self) -> int:
        return 1

    def oracle(self, state: Work) -> Items | None:
        """Return the answer, which needs no calculation if it is known."""
        return None if self.over(state) else (Item("answer", str(self.instance.answer)),)

    def check(self, actions: tuple[Items, ...]) -> Verdict:
        return check_work(self.instance, actions)

    def _solution_share(self, step: Step[Work, Items]) -> float:
        """Return the share of new equations that belong to the solution."""
        new = step.after.calculations[len(step.before.calculations) :]
        solution_keys = {equation_key(equation) for equation in self.instance.solution}
        solution_keys -= {equation.key for equation in step.before.calculations}
        return sum(equation.key in solution_keys for equation in new) / len(new) if new else 0.0

    def _answer_score(self, step: Step[Work, Items]) -> float:
        """Return the score of a tool agent's action: 1 for the answer, 0 for another result, −1 for
        none."""
        if step.after.answer is not None:
            return float(self.solved(step.after))
        new_works = step.after.calculations[len(step.before.calculations) :]
        return float(new_works[-1].result == self.instance.answer) if new_works else -1.0

    def _stray_share(self, step: Step[Work, Items]) -> float:
        """Return the share that an action's calculations outside the solution subtract from
        `_completion`; 0 for a single calculation, and after a right answer, which was not a
        guess."""
        new = step.after.calculations[len(step.before.calculations) :]
        if len(new) < 2 or self.solved(step.after):
            return 0.0
        solution_keys = {equation_key(equation) for equation in self.instance.solution}
        return sum(equation.key not in solution_keys for equation in new) / (
            len(self.instance.solution) + 1
        )

    def _completion(self, state: Work) -> float:
        if state.answer == self.instance.answer:
            return 1.0
        return solution_equation_count(self.instance, state) / (len(self.instance.solution) + 1)


Working = TeamEpisode[Work, Items]


def open_episode(instance: WordProblemInstance) -> Working:
    """Open an episode of the instance at its initial state."""
    puzzle = WordProblemPuzzle(instance)
    return Working(puzzle, puzzle.start())
