"""Trainings of the folder of results: their curves over each other, and what was sampled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.frame import Frame, number_of
from loopline.runtime.dashboard.sign_in import Refused, Viewer
from loopline.runtime.errors import UserError
from loopline.runtime.observe.recorded_runs import KnownRun
from loopline.runtime.observe.result_folders import scan
from loopline.runtime.observe.run_history import find_run
from loopline.runtime.observe.training_curves import (
    Group,
    Member,
    Series,
    groups_of,
    last_change,
    read_curves,
    rounds_of,
    smooth,
)
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot

MAX_TRAININGS = 200
"""Of the list, the newest ones."""
MAX_CHOSEN = 12
MAX_PLOTS = 40
MAX_SAMPLED_GROUPS = 5
SAMPLE_CHARS = 1_500
SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.97)


@dataclass(frozen=True)
class Training:
    """A line of the list."""

    folder: str
    changed: float
    """Unix seconds."""


@dataclass(frozen=True)
class Plot:
    """One kind of curve of all that were selected."""

    name: str
    drawing: str


@dataclass(frozen=True)
class Sample:
    """One candidate, as it is extremes."""

    member: Member
    text: str
    problem: str


@dataclass(frozen=True)
class SampledGroup:
    """A group with its best and its worst candidate."""

    group: Group
    rewards: str
    samples: Sequence[Sample]


class TrainingsView:
    """The page `/dashboard/trainings`."""

    def __init__(self, frame: Frame, state: StateDirectory) -> None:
        self._frame = frame
        self._store = state.store
        self._root = Path(frame.settings.gateway.results).resolve()
        self._turn = asyncio.Lock()
        self._curves: dict[str, tuple[float, dict[str, Series]]] = {}
        """By folder, as they were at that time: reading many points takes a while."""

    def routes(self) -> list[Route]:
        return [Route("/trainings", self._frame.page(self._page), methods=["GET"])]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        fields = request.query_params
        weight = _weight(number_of(fields, "smoothing"))
        async with self._turn:
            trainings, truncated = await asyncio.to_thread(self._list)
            selected = _chosen(fields.getlist("run"), trainings)
            plots = await asyncio.to_thread(self._plots, selected, weight)
        sampled = fields.get("of") or next(iter(selected), "")
        if sampled and sampled not in {training.folder for training in trainings}:
            raise Refused(f"{sampled[:200]!r} is not the folder of a training")
        rounds = await asyncio.to_thread(rounds_of, self._root / sampled) if sampled else []
        number = _round(number_of(fields, "round"), rounds)
        return self._frame.render(
            request,
            viewer,
            "trainings.html.j2",
            title="Trainings",
            root=str(self._root),
            trainings=trainings,
            truncated=truncated,
            chosen=selected,
            smoothing=weight,
            smoothings=SMOOTHINGS,
            plots=plots,
            sampled=sampled,
            rounds=rounds,
            round=number,
            groups=[] if number is None else await self._samples(sampled, number),
            day=_day,
        )

    def _list(self) -> tuple[list[Training], bool]:
        folders = scan(self._root)
        trainings = [
            Training(folder, last_change(self._root / folder)) for folder in folders.trainings
        ]
        trainings.sort(key=lambda training: (training.changed, training.folder), reverse=True)
        return trainings[:MAX_TRAININGS], folders.truncated or len(trainings) > MAX_TRAININGS

    def _plots(self, selected: Sequence[str], weight: float) -> list[Plot]:
        """Raises `UserError` without the package tensorboard."""
        curves: dict[str, list[Curve]] = {}
        for folder in selected:
            for part, series in self._curves_of(folder).items():
                label = _label(folder, part, alone=len(selected) == 1)
                for name, values in series.items():
                    points: list[Point] = smooth(values, weight)
                    curves.setdefault(name, []).append(Curve(label, points))
        drawings = (
            Plot(name, curves_plot(name, lines))
            for name, lines in sorted(curves.items())[:MAX_PLOTS]
        )
        return [plot for plot in drawings if plot.drawing]

    def _curves_of(self, folder: str) -> dict[str, Series]:
        changed = last_change(self._root / folder)
        before = self._curves.pop(folder, None)
        if before is None or before[0] != changed:
            before = (changed, read_curves(self._root / folder))
        self._curves[folder] = before  # the last that was asked for
        while len(self._curves) > MAX_CHOSEN:
            del self._curves[next(iter(self._curves))]
        return before[1]

    async def _samples(self, folder: str, number: int) -> list[SampledGroup]:
        """The groups whose rewards differ most: they show what is learned."""
        groups = await asyncio.to_thread(groups_of, self._root / folder, number)
        groups = [group for group in groups if group.members]
        groups.sort(key=_reward_range, reverse=True)
        return [await self._sampled(group) for group in groups[:MAX_SAMPLED_GROUPS]]

    async def _sampled(self, group: Group) -> SampledGroup:
        ordered = sorted(group.members, key=lambda member: member.reward, reverse=True)
        extremes = (
            ordered[:1] if ordered[0].reward == ordered[-1].reward else [ordered[0], ordered[-1]]
        )
        return SampledGroup(
            group,
            ", ".join(f"{member.reward:g}" for member in ordered[:32]),
            [await self._sample(member) for member in extremes],
        )

    async def _sample(self, member: Member) -> Sample:
        try:
            known_run = await find_run(self._frame.bus, member.run_id, self._store)
        except UserError as error:
            return Sample(member, "", str(error.args[0])[:200])
        text = _text(known_run, member)
        if text is None:
            return Sample(member, "", "the run has no such candidate")
        return Sample(member, text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "…", "")


def _text(known_run: KnownRun, member: Member) -> str | None:
    """What a candidate said."""
    for step in known_run.steps:
        if (step.turn, step.branch) == (member.turn, member.branch) and member.candidate < len(
            step.candidates
        ):
            calls = step.candidates[member.candidate].calls
            return "\n\n".join(call.text for call in calls)
    return None


def _reward_range(group: Group) -> float:
    rewards = [member.reward for member in group.members]
    return max(rewards) - min(rewards)


def _label(folder: str, part: str, *, alone: bool) -> str:
    if alone:
        return part or folder
    return f"{folder} {part}".strip()


def _chosen(folders_of_form: Sequence[str], trainings: Sequence[Training]) -> list[str]:
    """The folders to draw; without a choice the newest. Raises `Refused`."""
    folders = {training.folder for training in trainings}
    for folder in folders_of_form:
        if folder not in folders:
            raise Refused(f"{folder[:200]!r} is not the folder of a training")
    if len(folders_of_form) > MAX_CHOSEN:
        raise Refused(f"at most {MAX_CHOSEN} trainings are drawn over each other")
    return list(dict.fromkeys(folders_of_form)) or [training.folder for training in trainings[:1]]


def _weight(value: float | None) -> float:
    if value is not None and not 0 <= value < 1:
        raise Refused(f"smoothing is at least 0 and less than 1; got {value:g}")
    return 0.0 if value is None else value


def _round(value: float | None, rounds: Sequence[int]) -> int | None:
    """The round that is asked for, else the newest. Raises `Refused`."""
    if value is None:
        return rounds[-1] if rounds else None
    if value not in rounds:
        raise Refused(f"this training has no groups of a round {value:g}")
    return int(value)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
