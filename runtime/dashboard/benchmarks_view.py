"""Benchmarks of the results folder: the list, their history, and comparisons of two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from loopline.runtime.dashboard.frame import HEADERS, Frame
from loopline.runtime.dashboard.sign_in import Viewer
from loopline.runtime.errors import InputError, UserError
from loopline.runtime.jobs.programs import MODULES
from loopline.runtime.observe.result_folders import (
    PAGE,
    BenchmarkReader,
    BenchmarkResult,
    ResultFolders,
    scan,
)
from loopline.runtime.terminal.pages.curves import Curve, Point, curves_plot
from loopline.workers.isolated_python import OWN_PYTHON

MAX_SHOWN = 200
COMPARE_SECONDS = 120.0
_COMPARISONS = 32
"""Maximum number of cached comparisons: the same two folders always yield the same numbers."""
_DAY_SECONDS = 86_400
# Headers of a page from another program: the page may run its own script under its own policy,
# without access to this site.
_REPORT_HEADERS = {
    **HEADERS,
    "content-security-policy": "sandbox allow-scripts allow-popups; frame-ancestors 'none'",
}


@dataclass(frozen=True)
class Course:
    """A benchmark over time."""

    name: str
    drawing: str


class BenchmarksView:
    """Pages below `/dashboard/benchmarks`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._root = Path(frame.settings.gateway.results).resolve()
        self._reader = BenchmarkReader(self._root)
        self._turn = asyncio.Lock()
        self._comparisons: dict[object, list[dict[str, Any]]] = {}

    def routes(self) -> list[Route]:
        page = self._frame.page
        return [
            Route("/benchmarks", page(self._page), methods=["GET"]),
            Route("/benchmarks/compare", page(self._compare), methods=["GET"]),
            Route("/benchmarks/report", page(self._report), methods=["GET"]),
        ]

    async def _page(self, request: Request, viewer: Viewer) -> Response:
        folders, results = await self._results()
        names = sorted({result.name for result in results if result.name})
        wanted = request.query_params.get("name", "")
        listed = [result for result in results if wanted in ("", result.name)]
        return self._frame.render(
            request,
            viewer,
            "benchmarks.html.j2",
            title="Benchmarks",
            root=str(self._root),
            names=names,
            wanted=wanted,
            results=listed[:MAX_SHOWN],
            more=max(0, len(listed) - MAX_SHOWN),
            truncated=folders.truncated,
            courses=courses(listed),
            day=_day,
        )

    async def _results(self) -> tuple[ResultFolders, list[BenchmarkResult]]:
        async with self._turn:
            folders = await asyncio.to_thread(scan, self._root)
            return folders, await asyncio.to_thread(self._reader.read, folders.benchmarks)

    async def _known(self, folder: str) -> BenchmarkResult:
        """Return the benchmark of a folder, which must be on the list. Raises `InputError`."""
        _, results = await self._results()
        for result in results:
            if result.folder == folder:
                return result
        raise InputError(f"{folder[:200]!r} is not the folder of a benchmark below {self._root}")

    async def _report(self, request: Request, viewer: Viewer) -> Response:
        """Return the page that the bench wrote."""
        result = await self._known(request.query_params.get("folder", ""))
        if not result.has_page:
            raise InputError(f"{result.folder} has no report yet: `bench report` writes one")
        return FileResponse(
            self._root / result.folder / PAGE, media_type="text/html", headers=_REPORT_HEADERS
        )

    async def _compare(self, request: Request, viewer: Viewer) -> Response:
        first, second = [
            await self._known(request.query_params.get(name, "")) for name in ("a", "b")
        ]
        comparisons = await self._comparison(first, second)
        return self._frame.render(
            request,
            viewer,
            "benchmarks_compare.html.j2",
            title="Two benchmarks",
            first=first,
            second=second,
            comparisons=comparisons,
            day=_day,
            percent=_percent,
            points=_points,
            signed=_signed,
        )

    async def _comparison(
        self, first: BenchmarkResult, second: BenchmarkResult
    ) -> list[dict[str, Any]]:
        """Compare two folders with `bench compare` in a separate process: it belongs to a higher
        layer than the dashboard, and keeps a processor busy for a while."""
        pair = [str(self._root / result.folder) for result in (first, second)]
        stamp = tuple((path, (Path(path) / "items.jsonl").stat().st_mtime_ns) for path in pair)
        async with self._turn:
            if stamp in self._comparisons:
                return self._comparisons[stamp]
            comparisons = await _bench_compare(pair)
            self._comparisons[stamp] = comparisons
            while len(self._comparisons) > _COMPARISONS:
                del self._comparisons[next(iter(self._comparisons))]
        return comparisons


async def _bench_compare(pair: Sequence[str]) -> list[dict[str, Any]]:
    """Run the program. Raises `UserError` with its error message."""
    process = await asyncio.create_subprocess_exec(
        *OWN_PYTHON, "-c", f"from {MODULES['bench']} import main; main()",
        "compare", *pair, "--json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(COMPARE_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        raise UserError(f"the comparison took more than {COMPARE_SECONDS:g} s") from None
    finally:
        # Also if the viewer has left the page.
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        message = errors.decode(errors="replace").strip().rpartition("error: ")[2]
        raise UserError(message[:2_000] or f"bench compare ended with {process.returncode}")
    return orjson.loads(output)


def courses(results: Sequence[BenchmarkResult]) -> list[Course]:
    """Plot the accuracy of each arm over time for each benchmark that was run more than once."""
    groups: dict[tuple[str, str], list[BenchmarkResult]] = {}
    for result in reversed(results):
        if result.arms:
            groups.setdefault(result.course, []).append(result)
    return [
        Course(f"{name}, split {split}", _course_plot(name, group))
        for (name, split), group in groups.items()
        if len(group) > 1
    ]


def _course_plot(name: str, results: Sequence[BenchmarkResult]) -> str:
    arms: dict[str, list[Point]] = {}
    for result in results:
        for arm in result.arms:
            point = Point(result.created, arm.accuracy, arm.low, arm.high)
            arms.setdefault(arm.name, []).append(point)
    span = results[-1].created - results[0].created
    form = "%m-%d" if span > 2 * _DAY_SECONDS else "%H:%M" if span > 600 else "%H:%M:%S"
    ticks = [results[0].created + span * part / 3 for part in range(4)]
    return curves_plot(
        f"Accuracy of {name} over time",
        [Curve(arm, points) for arm, points in arms.items()],
        x_label="time (UTC)",
        say=_percent,
        say_x=lambda seconds: time.strftime(form, time.gmtime(seconds)),
        x_ticks=ticks,
        least=0.0,
        most=1.0,
    )


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _points(share: float) -> str:
    return f"{share * 100:+.1f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:+,.1f}".replace("-", "−")
