"""A word problem with its worked solution."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.agents.environments.word_problems.scheme import Operator


@dataclass(frozen=True)
class Equation:
    """`left op right = result`, in whole numbers."""

    left: int
    op: Operator
    right: int
    result: int

    @property
    def expression(self) -> str:
        return f"{self.left} {self.op} {self.right}"

    def __str__(self) -> str:
        return f"{self.expression} = {self.result}"


@dataclass(frozen=True)
class SubTask:
    """A piece of the problem that is understandable without the rest, and can be handed out."""

    problem: str
    equations: tuple[Equation, ...]

    @property
    def answer(self) -> int:
        return self.equations[-1].result


@dataclass(frozen=True)
class Link:
    """One link of the story that needs arithmetic."""

    scheme: str
    label: str
    parts: tuple[SubTask, ...]
    stages: tuple[tuple[int, ...], ...]
    """Indices into `parts`; the parts of one stage do not need each other's results."""


@dataclass(frozen=True)
class WordProblem:
    """A generated question with its exact answer."""

    id: str
    """First 16 hex digits of the SHA-256 of the prompt."""
    split: str
    prompt: str
    answer: str
    """A positive whole number."""
    structure: str
    """Names of the schemes in order, joined by `+`."""
    wording: str
    """Ids of the wordings in order, joined by `+`."""
    links: tuple[Link, ...]

    @property
    def steps(self) -> int:
        """Number of links of the story that need arithmetic (1 to 4)."""
        return len(self.links)

    @property
    def sub_tasks(self) -> tuple[SubTask, ...]:
        return tuple(part for link in self.links for part in link.parts)
