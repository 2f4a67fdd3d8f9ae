"""`train prompts` as its user runs it: real workers on a real bus."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.prompts import load_prompt
from loopline.bus import BusSettings
from loopline.runtime.client.client import Client
from loopline.runtime.config import settings as config
from loopline.workers.settings import WorkerBase
from tests.trainers.prompt_search.searching import (
    SEED,
    prompt_file,
    serving,
    solo_team,
    sums,
    umi_team,
)

UMI = ("--workflow", "umi", "--seed", str(SEED), "--runs", "24", "--held-out", "20")
NO_IDEA = "I have no idea."
HEEDS = [
    {"phrase": "You improve", "answer": "<prompt>\nWork it out.\n</prompt>"},
    {"phrase": "step by step", "answer": NO_IDEA},
]
"""A model that knows nothing under the shipped prompt, and writes a better one on request."""


def report_of(output: Path) -> dict[str, Any]:
    return json.loads((output / "report.json").read_text())


def solo(**model: object) -> Callable[[BusSettings], list[WorkerBase]]:
    return lambda bus: solo_team(bus, {"heeds": HEEDS, "latency_seconds": 0.01}, **model)


def asked(folder: Path, output: str) -> tuple[str, ...]:
    data = sums(folder / "sums.jsonl", 80)
    how = ("--runs", "30", "--held-out", "12", "--concurrency", "3", "--policy", "solo=llm")
    return (str(folder / output), "--workflow", "solo", "--data", str(data), *how)


def stopped_at(results: int, process: Any, output: Path, number: signal.Signals) -> None:
    """Send a signal when that many runs are in the log."""
    log = output / "runs.jsonl"
    while process.poll() is None:
        if log.exists() and log.read_bytes().count(b'"played"') >= results:
            process.send_signal(number)
            return
        time.sleep(0.005)


async def test_a_better_prompt_is_found_proven_on_held_out_questions_and_adopted(
    tmp_path: Path,
) -> None:
    variants, output = tmp_path / "variants", tmp_path / "out"
    prompt_file(variants / "hasty.md", "Be quick about it.")
    better = prompt_file(variants / "twice.md", "Look twice.")
    heeds = [
        {"phrase": "Look twice", "mistake_rate": 0.05},
        {"phrase": "Be quick", "mistake_rate": 0.9},
    ]
    model = {"mistake_rate": 0.6, "heeds": heeds}
    async with serving(lambda bus: umi_team(bus, model), "umi_scripted", tmp_path) as deployment:
        line = deployment.last_line(str(output), *UMI, "--variants", str(variants))
        async with Client.connect(deployment.bus) as client:
            lines = (output / "runs.jsonl").read_text().splitlines()
            last = await client.trajectory(json.loads(lines[-1])["run_id"])
    assert line["adopted"] == {"umi_planner": "twice"}
    comparison = line["prompts"]["umi_planner"]["held_out"]
    assert comparison["questions"] == 20
    assert comparison["winner"] > comparison["current"]
    assert comparison["difference"][1] > 0
    assert comparison["p"] < 0.05
    assert (output / "prompts" / "umi_planner.md").read_bytes() == better.read_bytes()
    [prompt] = report_of(output)["prompts"]
    assert [candidate["label"] for candidate in prompt["candidates"]] == [
        "twice",
        "current",
        "hasty",
    ]
    assert prompt["candidates"][0]["hash"] == prompt["adopted"]
    assert prompt["rounds"] == [[3, 4], [2, 6]]
    assert line["runs"] == 3 * 4 + 2 * 6 + 2 * 20
    # The measured text is the one that a deployment with the written profile uses.
    settings = config.load(str(output / "profile.toml"), environ={})
    assert settings.workers == config.load("umi_scripted", environ={}).workers
    prompt_files = settings.prompt_files
    run = Client(BusSettings(), prompt_files=prompt_files).new_run("?", workflow="umi")
    assert run.prompts["umi_planner.md"] == prompt["adopted"]
    shipped = load_prompt("umi_planner").hash
    assert last.run.prompts["umi_planner.md"] in (prompt["adopted"], shipped)


@pytest.mark.slow
async def test_the_shipped_prompt_stays_if_none_is_better(tmp_path: Path) -> None:
    """A candidate that leads slightly in the search, and one that changes nothing."""
    variants, output = tmp_path / "variants", tmp_path / "out"
    prompt_file(variants / "polite.md", "Be polite.")
    prompt_file(variants / "same.md", load_prompt("umi_planner").text + " Please.")
    model = {
        "mistake_rate": 0.5,
        "heeds": [{"phrase": "Be polite", "mistake_rate": 0.47}],
    }
    async with serving(lambda bus: umi_team(bus, model), "umi_scripted", tmp_path) as deployment:
        line = deployment.last_line(str(output), *UMI, "--variants", str(variants))
    assert line["adopted"] == {}
    assert report_of(output)["prompts"][0]["adopted"] is None
    assert not (output / "prompts").exists()
    assert not (output / "profile.toml").exists()


async def test_a_stopped_and_killed_search_ends_like_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    """First by Ctrl-C, then by SIGKILL; no run is requested twice, and the bus has charged what the
    report states."""
    output = tmp_path / "out"
    words = (*asked(tmp_path, "out"), "--propose", "1", "--proposer", "llm")
    async with serving(solo(), "scripted", tmp_path) as deployment:
        process = deployment.start(*words)
        stopped_at(3, process, output, signal.SIGINT)
        out, errors = process.communicate(timeout=100)
        assert process.returncode == 130, errors
        assert "Resume with the same command" in errors
        assert "Traceback" not in errors + out
        process = deployment.start(*words)
        stopped_at(25, process, output, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        line = deployment.last_line(*words)
        lines = (output / "runs.jsonl").read_text().splitlines()
        ids = Counter(
            json.loads(log_line)["run_id"] for log_line in lines if '"admitted"' in log_line
        )
        async with Client.connect(deployment.bus) as client:
            usage = [entry for run_id in ids for entry in await client.usage(run_id)]
    # As planned for two candidates: one round of 15 questions, and a request of the proposer.
    assert line["runs"] == len(ids) == 2 * 15 + 1 + 2 * 12
    assert set(ids.values()) == {1}
    used = [entry.usage for entry in usage if entry.usage is not None]
    assert len(used) == len(usage)
    assert (
        sum(usage_entry.prompt + usage_entry.completion for usage_entry in used) == line["tokens"]
    )
    assert line["adopted"] == {"solo": "proposal-1"}
    assert (output / "candidates" / "solo" / "proposal-1.md").read_bytes() == (
        (output / "prompts" / "solo.md").read_bytes()
    )


async def test_a_deployment_that_cannot_answer_is_reported_and_nothing_is_adopted(
    tmp_path: Path,
) -> None:
    variant = prompt_file(tmp_path / "v" / "work.md", "Work it out.", name="solo")
    words = (*asked(tmp_path, "out"), "--variants", str(variant))
    async with serving(solo(max_context=8), "scripted", tmp_path) as deployment:
        failed = deployment.run(*words)
    away = deployment.run(*words)
    assert (failed.returncode, away.returncode) == (1, 3)
    assert "runs of the current prompt ended as error (" in failed.stderr
    assert "Traceback" not in failed.stderr + away.stderr
    assert not (tmp_path / "out" / "report.json").exists()
