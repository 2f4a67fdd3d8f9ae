"""Trainings of the results folder: their overlaid curves and their samples."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from loopline.runtime.config.state import StateDirectory
from loopline.runtime.dashboard.frame import HEADERS, PATH, Frame, number_of
from loopline.runtime.dashboard.sign_in import Viewer
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.observe.recorded_runs import KnownRun
from loopline.runtime.observe.result_folders import scan
from loopline.runtime.observe.run_history import find_run
from loopline.runtime.observe.training_curves import (
    CurveReader,
    Group,
    Member,
    Series,
    groups_of,
    last_change,
    rounds_of,
    smooth,
    stamp_of,
)
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot

MAX_TRAININGS = 200
"""Maximum number of trainings in the list, which shows the newest."""
MAX_CHOSEN = 12
MAX_PLOTS = 40
MAX_SAMPLED_GROUPS = 5
SAMPLE_CHARS = 1_500
SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.97)
ACTIVE_SECONDS = 900.0
"""Seconds without a new point after which a training is polled less often."""
OFTEN_SECONDS, SELDOM_SECONDS = 2, 30
"""Seconds between two polls for new points, while a training is active and afterwards."""


@dataclass(frozen=True)
class Training:
    """One line of the list."""

    folder: str
    changed: float
    """Time of the last new point in Unix seconds."""


@dataclass(frozen=True)
class Plot:
    """Curves of one kind for all selected trainings."""

    name: str
    drawing: str

    @property
    def id(self) -> str:
        """Id of the plot's element, without spaces."""
        return "curve-" + "-".join(self.name.split())


@dataclass(frozen=True)
class Sample:
    """One candidate with an extreme reward."""

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
        self._listed: frozenset[str] = frozenset()
        """Folders of the last list. Refreshes of a page don't search for folders."""
        self._readers: dict[str, CurveReader] = {}
        """Curve readers by folder. Reading many points takes a while, so only new points are
        read."""

    def routes(self) -> list[Route]:
        page = self._frame.page
        return [
            Route("/trainings", page(self._page), methods=["GET"]),
            Route("/trainings/curves", page(self._curves), methods=["GET"]),
        ]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        fields = request.query_params
        weight = _weight(number_of(fields, "smoothing"))
        async with self._turn:
            trainings, truncated = await asyncio.to_thread(self._list)
            folders = [training.folder for training in trainings]
            selected = _chosen(fields.getlist("run"), folders)
            drawn = await asyncio.to_thread(self._draw, selected, weight)
        sampled = fields.get("of") or next(iter(selected), "")
        if sampled and sampled not in folders:
            raise InputError(f"{sampled[:200]!r} is not the folder of a training")
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
            smoothings=SMOOTHINGS,
            **drawn,
            sampled=sampled,
            rounds=rounds,
            round=number,
            groups=[] if number is None else await self._samples(sampled, number),
            day=_day,
        )

    async def _curves(self, request: Request, viewer: Viewer) -> Response:
        """Return only the curves, or nothing if the page already has them."""
        fields = request.query_params
        weight = _weight(number_of(fields, "smoothing"))
        async with self._turn:
            if not self._listed.issuperset(fields.getlist("run")):
                await asyncio.to_thread(self._list)
            selected = _chosen(fields.getlist("run"), sorted(self._listed))
            if fields.get("stamp") == await asyncio.to_thread(self._stamp, selected):
                return Response(status_code=204, headers=HEADERS)
            drawn = await asyncio.to_thread(self._draw, selected, weight)
        return self._frame.fragment("training_curves.html.j2", **drawn)

    def _stamp(self, selected: Sequence[str]) -> str:
        """Return a stamp of a page's content: the curves and the polling interval."""
        folders = [self._root / folder for folder in selected]
        return f"{stamp_of(folders)}-{_seconds(folders)}"

    def _draw(self, selected: Sequence[str], weight: float) -> dict[str, Any]:
        """Return the content of the curves' part of the page."""
        stamp = self._stamp(selected)
        fields = [("run", folder) for folder in selected]
        fields += [("smoothing", f"{weight:g}"), ("stamp", stamp)]
        return {
            "smoothing": weight,
            "plots": self._plots(selected, weight),
            "live": f"{PATH}/trainings/curves?{urlencode(fields)}",
            "seconds": _seconds([self._root / folder for folder in selected]),
        }

    def _list(self) -> tuple[list[Training], bool]:
        folders = scan(self._root)
        trainings = [
            Training(folder, last_change(self._root / folder)) for folder in folders.trainings
        ]
        trainings.sort(key=lambda training: (training.changed, training.folder), reverse=True)
        self._listed = frozenset(training.folder for training in trainings[:MAX_TRAININGS])
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
        reader = self._readers.pop(folder, None) or CurveReader(self._root / folder)
        self._readers[folder] = reader  # now the most recently used
        while len(self._readers) > MAX_CHOSEN:
            del self._readers[next(iter(self._readers))]
        return reader.read()

    async def _samples(self, folder: str, number: int) -> list[SampledGroup]:
        """Return the groups whose rewards differ most: they show what the training learns."""
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
    """Return the text of a candidate; None if the run doesn't have the candidate."""
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


def _seconds(trainings: Sequence[Path]) -> int:
    """Return the seconds until a page polls the curves of these trainings again."""
    newest = max((last_change(training) for training in trainings), default=0.0)
    return OFTEN_SECONDS if time.time() - newest < ACTIVE_SECONDS else SELDOM_SECONDS


def _chosen(folders_of_form: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the folders to draw; without a choice, the first folder. Raises `InputError`."""
    for folder in folders_of_form:
        if folder not in folders:
            raise InputError(f"{folder[:200]!r} is not the folder of a training")
    if len(folders_of_form) > MAX_CHOSEN:
        raise InputError(f"at most {MAX_CHOSEN} trainings fit in one chart")
    return list(dict.fromkeys(folders_of_form)) or list(folders[:1])


def _weight(value: float | None) -> float:
    if value is not None and not 0 <= value < 1:
        raise InputError(f"smoothing is at least 0 and less than 1; got {value:g}")
    return 0.0 if value is None else value


def _round(value: float | None, rounds: Sequence[int]) -> int | None:
    """Return the requested round, or else the newest. Raises `InputError`."""
    if value is None:
        return rounds[-1] if rounds else None
    if value not in rounds:
        raise InputError(f"this training has no groups of a round {value:g}")
    return int(value)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
