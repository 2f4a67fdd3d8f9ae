"""The report's own script on its data: run by Node, if there is one."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Candidate, Trajectory
from loopline.bench.checkers import Scorer
from loopline.bench.output import OutputDirectory
from loopline.bench.report import links
from loopline.bench.report.writer import write_reports
from tests.bench.benchmarks import created, items, manifest, run
from tests.bench.local_client import LocalClient

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")

TURNED = "left\u202eright\u061c\u2028\ufeff\u200b"
ODD_ID = "a+b & c%20d?e=f#g/\u202eh"
FIRST = links.run_of(ODD_ID)


class Team(LocalClient):
    """The first question's last step has three candidates, of which the second is executed."""

    async def wait(self, run_id: str) -> Trajectory:
        trajectory = await super().wait(run_id)
        if not trajectory.run.task.prompt.startswith("What is 3 "):
            return trajectory
        last = trajectory.steps[-1]
        call = last.candidates[0].calls[-1]
        calls = [call.model_copy(update={"text": text}) for text in ("one", TURNED, "three")]
        candidates = tuple(Candidate(calls=(step_call,)) for step_call in calls)
        step = last.model_copy(update={"candidates": candidates, "selected": 1})
        return trajectory.model_copy(update={"steps": (*trajectory.steps[:-1], step)})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> OutputDirectory:
    questions = items(2)
    first = questions[0]
    questions[0] = type(first)(ODD_ID, first.question, first.gold, first.about)
    path = tmp_path_factory.mktemp("scripted")
    directory = created(path, manifest(questions, arms=("llm",)))

    async def whole() -> None:
        with Scorer() as scorer:
            await run(directory, Team(), scorer)

    asyncio.run(whole())
    write_reports(directory)
    return directory


def shown(directory: OutputDirectory, place: str) -> dict[str, Any]:
    """The page that a reader sees at that link."""
    reader = Path(__file__).with_name("page_reader.js")
    process = subprocess.run(
        [str(NODE), str(reader), str(directory.path / "report.html"), place],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(process.stdout)


def texts(tree: Any, *, folded: bool = True) -> Iterator[str]:
    """Its texts in order; `folded`: including collapsed ones."""
    if isinstance(tree, str):
        yield tree
        return
    for child in tree[2]:
        if folded or tree[0] != "details" or child[0] == "summary":
            yield from texts(child, folded=folded)


def test_the_executed_candidate_is_shown_and_the_others_are_collapsed(
    finished: OutputDirectory,
) -> None:
    sheet = shown(finished, FIRST)["sheet"]
    open_ = list(texts(sheet, folded=False))
    assert "candidate 1, executed" in open_
    assert "2 others, not executed" in open_
    assert not {"one", "three"} & set(open_)
    every = list(texts(sheet))
    assert every.index("candidate 0") < every.index("one") < every.index("candidate 2")


def test_a_transcript_without_an_executed_candidate_is_shown_in_full(
    finished: OutputDirectory, tmp_path: Path
) -> None:
    """An older version of the bench wrote it."""
    older = OutputDirectory(Path(shutil.copytree(finished.path, tmp_path / "older")))
    lines = older.transcripts_path.read_text(encoding="utf-8")
    lines = re.sub(r'"selected":\d+,', "", lines)
    lines = re.sub(r'"candidate":\d+,', "", lines)
    older.transcripts_path.write_text(lines, encoding="utf-8")
    write_reports(older)
    open_ = list(texts(shown(older, FIRST)["sheet"], folded=False))
    assert "candidate" not in lines
    assert open_.index("one") < open_.index("three")


def test_characters_that_reorder_text_are_shown_as_code_points(finished: OutputDirectory) -> None:
    page = shown(finished, FIRST)
    every = "".join([*texts(page["sheet"]), *texts(page["list"])])
    assert "left\\u202eright\\u061c\\u2028\\ufeff\\u200b" in every
    assert not set(TURNED) & set("\u202e\u061c\u2028\ufeff\u200b") & set(every)


def test_a_link_leads_to_its_question_for_any_id(finished: OutputDirectory) -> None:
    """Space, plus, percent, ampersand, question mark."""
    sheet = shown(finished, FIRST)["sheet"]
    assert ODD_ID.replace("\u202e", "\\u202e") in list(texts(sheet))
