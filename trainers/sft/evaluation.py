"""Measures the success of models on held-out problems, with intervals.

Each outcome is kept, so that a later measurement can be compared with this one problem by problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, TypeAdapter

from loopline.agents.environments.word_problems import HELD_OUT, SubTask, generate
from loopline.agents.records import Record
from loopline.runtime.terminal.tables import new_table
from loopline.trainers.core.models import Model
from loopline.trainers.core.paired_statistics import wilson
from loopline.trainers.sft.batched_dialogues import Arm, attempt
from loopline.trainers.sft.dialogues import question_with_type

if TYPE_CHECKING:
    from rich.table import Table

SKILLS = "skills.json"
SEED = 2026
"""Seed of the problems that model cards report."""

Task = Literal["delegate", "llm", "slm", "llm_sub_tasks", "slm_sub_tasks"]
TITLES: dict[Task, str] = {
    "delegate": "whole problems, micro-LLM delegating to micro-SLM",
    "llm": "whole problems, micro-LLM alone",
    "slm": "whole problems, micro-SLM alone",
    "llm_sub_tasks": "sub-tasks, micro-LLM",
    "slm_sub_tasks": "sub-tasks, micro-SLM",
}
TOOLS = {True: "calculator", False: "none"}


class Skill(Record):
    """Success on one split."""

    task: Task
    split: str
    calculator: bool
    seed: int = SEED
    outcomes: str = Field(pattern=r"^[01]+$")
    """`1` for each solved problem, `0` for each unsolved one, in order."""

    @property
    def key(self) -> tuple[Task, bool, str]:
        """Identity of the measurement; a later one with the same key replaces this one."""
        return self.task, self.calculator, self.split

    @property
    def title(self) -> str:
        """Title of the measurement: its task, tool and split."""
        task, tool = TITLES[self.task], TOOLS[self.calculator]
        return f"{task} (tool: {tool}), {self.split.replace('_', ' ')}"

    @property
    def right(self) -> int:
        return self.outcomes.count("1")

    @property
    def asked(self) -> int:
        return len(self.outcomes)

    @property
    def rate(self) -> float:
        return self.right / self.asked

    def shown(self) -> str:
        """`97.2 % (95.4–98.3)`"""
        interval = wilson(self.right, self.asked)
        return f"{100 * self.rate:.1f} % ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def measure(
    task: Task,
    split: str,
    *,
    samples: int,
    calculator: bool = True,
    llm: Model | None = None,
    slm: Model | None = None,
    seed: int = SEED,
) -> Skill:
    """Give the first `samples` problems of a split (or a sub-task of each) to the models."""
    problems = generate(split, samples, seed)
    arm: Arm
    if task in ("llm_sub_tasks", "slm_sub_tasks"):
        arm = "llm" if task == "llm_sub_tasks" else "slm"
        parts = [_one_sub_task(p.sub_tasks, index) for index, p in enumerate(problems)]
        prompts = [question_with_type(part.problem, "integer") for part in parts]
        answers = [str(part.answer) for part in parts]
    else:
        arm = task
        prompts = [problem.prompt for problem in problems]
        answers = [problem.answer for problem in problems]
    predictions = attempt(arm, prompts, llm=llm, slm=slm, calculator=calculator)
    marks = (
        "1" if prediction == right else "0"
        for prediction, right in zip(predictions, answers, strict=True)
    )
    return Skill(task=task, split=split, calculator=calculator, seed=seed, outcomes="".join(marks))


def _one_sub_task(parts: Sequence[SubTask], index: int) -> SubTask:
    return parts[index % len(parts)]


def splits() -> tuple[str, ...]:
    """The held-out splits, in the order in which they are reported."""
    return tuple(split.value for split in HELD_OUT)


_SKILLS = TypeAdapter(list[Skill])


def read_skills(folder: Path) -> list[Skill]:
    """The measurements of the model in `folder`; empty if there are none."""
    path = folder / SKILLS
    return _SKILLS.validate_json(path.read_bytes()) if path.exists() else []


def add_skills(folder: Path, measured: Sequence[Skill]) -> list[Skill]:
    """Add new measurements to the old ones, replacing those of the same task and split."""
    skills_by_key = {skill.key: skill for skill in [*read_skills(folder), *measured]}
    skills = list(skills_by_key.values())
    (folder / SKILLS).write_bytes(_SKILLS.dump_json(skills, indent=1) + b"\n")
    return skills


def markdown(skills: Sequence[Skill]) -> str:
    """A Markdown table: one line per task, one column per split."""
    head, *rows = _rows(skills)
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def table(skills: Sequence[Skill]) -> Table:
    """The same for a terminal: narrow enough for 80 columns."""
    (task, _, *columns), *rows = _rows(skills)
    skill_table = new_table(task, *(column.replace(" ", "\n") for column in columns), words=(task,))
    for title, tool, *cells in rows:
        skill_table.add_row(
            f"{title} (tool: {tool})", *(cell.replace(" (", "\n(") for cell in cells)
        )
    return skill_table


def _rows(skills: Sequence[Skill]) -> list[list[str]]:
    """The heading, then one row per task."""
    columns = splits()
    rows = [["task", "tool", "n", *(column.replace("_", " ") for column in columns)]]
    for task, title in TITLES.items():
        for calculator, tool in TOOLS.items():
            row = {s.split: s for s in skills if s.task == task and s.calculator == calculator}
            if row:
                question_count = max(skill.asked for skill in row.values())
                cells = (row[c].shown() if c in row else "–" for c in columns)
                rows.append([title, tool, str(question_count), *cells])
    return rows
