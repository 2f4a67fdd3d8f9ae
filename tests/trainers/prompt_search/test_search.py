"""The sequence of a search, with models that obey their instructions."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Outcome, Run
from loopline.bus import BusUnavailable, Overloaded
from loopline.trainers.errors import TrainingError
from loopline.trainers.prompts.playing import LOG, RunLog
from loopline.trainers.prompts.report import Report
from loopline.trainers.prompts.search import rounds
from tests.trainers.prompt_search.local_search import (
    NO_IDEA,
    SOLO,
    LocalClient,
    Watched,
    client,
    searched,
    sums,
    variant,
)

BAD = {"phrase": "step by step", "answer": NO_IDEA}
"""The shipped prompt contains this phrase: under it the model knows nothing."""
WRITER = "You improve the instructions"
GOOD = variant("good", "Work it out.")
USELESS = variant("useless", "Think step by step, please.")
LAZY = {"phrase": "Be lazy", "answer": NO_IDEA}


def standing(report: Report) -> dict[str, tuple[int, int]]:
    return {
        candidate.label: (candidate.solved, candidate.questions)
        for candidate in report.prompts[0].candidates
    }


async def test_a_prompt_that_solves_more_held_out_questions_is_adopted(tmp_path: Path) -> None:
    result = await searched(tmp_path, client([BAD]), [USELESS, GOOD])
    [prompt] = result.report.prompts
    assert result.adopted == {"solo": GOOD}
    assert prompt.adopted == GOOD.hash
    assert prompt.comparison is not None
    assert (prompt.comparison.winner, prompt.comparison.current) == (20, 0)
    # Three candidates: two rounds of four and six questions.
    assert standing(result.report) == {"good": (10, 10), "current": (0, 10), "useless": (0, 4)}
    assert result.report.runs == 3 * 4 + 2 * 6 + 2 * 20


async def test_the_prompt_in_force_stays_if_no_candidate_solves_more(
    tmp_path: Path,
) -> None:
    result = await searched(tmp_path, client([LAZY]), [GOOD, variant("lazy", "Be lazy.")])
    [prompt] = result.report.prompts
    assert result.adopted == {}
    assert (prompt.winner, prompt.comparison, prompt.adopted) == ("current", None, None)
    assert prompt.why == "no candidate solved more"
    assert result.report.runs == 24


async def test_a_lead_that_held_out_questions_do_not_confirm_is_not_adopted(
    tmp_path: Path,
) -> None:
    """The winner of many noisy candidates is partly lucky: here it is entirely luck."""
    question_set = sums(40, 12)
    # The training questions, and no others, have a gold answer that only the prompt without
    # steps produces.
    lucky = [q.model_copy(update={"gold": NO_IDEA}) for q in question_set.train]
    questions = type(question_set)(
        question_set.source, question_set.checker, tuple(lucky), question_set.held_out
    )
    deployment = client([{"phrase": "Admit it", "answer": NO_IDEA}])
    result = await searched(
        tmp_path, deployment, [variant("lucky", "Admit it.")], questions=questions
    )
    [prompt] = result.report.prompts
    assert prompt.winner == "lucky"
    assert prompt.comparison is not None
    assert prompt.comparison.difference[0] == -1.0
    assert (result.adopted, prompt.adopted) == ({}, None)
    assert "not better" in prompt.why


async def test_the_search_ends_when_no_candidate_is_left_to_compare(tmp_path: Path) -> None:
    """The prompt in force solves everything, so nothing is proposed."""
    result = await searched(tmp_path, client([]), [], propose=3, proposer="llm")
    first, _ = rounds(4, 24)
    assert standing(result.report) == {"current": (first.questions, first.questions)}
    assert result.report.runs == first.questions
    assert result.report.prompts[0].why == "no candidate solved more"


async def test_a_proposal_never_shares_its_name_with_a_variant(tmp_path: Path) -> None:
    """For example one that an earlier search proposed."""
    writes = {"phrase": WRITER, "answer": "Here:\n<prompt>\nWork it out.\n</prompt>"}
    deployment = client([writes, BAD])
    result = await searched(
        tmp_path,
        deployment,
        [variant("proposal-1", "Guess step by step.")],
        propose=1,
        proposer="llm",
    )
    assert standing(result.report).keys() == {"current", "proposal-1", "proposal-2"}
    assert result.adopted["solo"].label == "proposal-2"


async def test_a_proposal_is_measured_like_any_candidate_and_adopted_under_its_own_name(
    tmp_path: Path,
) -> None:
    writes = {"phrase": WRITER, "answer": "Here:\n<prompt>\nWork it out.\n</prompt>"}
    deployment = client([writes, BAD])
    result = await searched(tmp_path, deployment, [], propose=2, proposer="llm")
    adopted = result.adopted["solo"]
    assert adopted.prompt.text == "Work it out."
    assert adopted.prompt.version == SOLO.version + 1
    assert adopted.origin == "proposed by llm version 0"
    assert result.proposed == {"solo": (adopted,)}
    # It solved everything, so a second one would have nothing to fix.
    assert standing(result.report).keys() == {"current", "proposal-1"}
    [proposal_run] = [run for run in deployment.runs.values() if run.workflow == "completion"]
    assert SOLO.text in proposal_run.task.prompt
    assert "What is 3 * 5?" in proposal_run.task.prompt
    assert f"the answer is {NO_IDEA!r}, right is '15'" in proposal_run.task.prompt


async def test_a_forbidden_proposal_is_refused_and_reported(tmp_path: Path) -> None:
    writes = {"phrase": WRITER, "answer": "<prompt>\nAnswer {question}.\n</prompt>"}
    result = await searched(tmp_path, client([writes, BAD]), [], propose=2, proposer="llm", runs=60)
    [prompt] = result.report.prompts
    assert [proposal.label for proposal in prompt.refused] == ["proposal-1", "proposal-2"]
    assert "placeholder {question}" in prompt.refused[0].why
    assert result.adopted == {}


async def test_a_request_to_improve_the_best_prompt_lists_the_other_attempts(
    tmp_path: Path,
) -> None:
    writes = {"phrase": WRITER, "answer": "<prompt>\nStill step by step.\n</prompt>"}
    deployment = client([writes, BAD])
    result = await searched(tmp_path, deployment, [], propose=2, proposer="llm", runs=60)
    first, second = (r for r in deployment.runs.values() if r.workflow == "completion")
    assert "Other instructions" not in first.task.prompt
    assert "Still step by step." in second.task.prompt
    [prompt] = result.report.prompts
    assert [proposal.why for proposal in prompt.refused] == ["the text is that of proposal-1"]


async def test_a_search_stops_before_its_tokens_run_out_and_leaves_some_for_the_comparison(
    tmp_path: Path,
) -> None:
    whole = await searched(tmp_path / "whole", client([BAD]), [USELESS, GOOD])
    tokens_per_run = whole.report.tokens / whole.report.runs
    budget = int(tokens_per_run * 60)
    short = await searched(tmp_path / "short", client([BAD]), [USELESS, GOOD], tokens=budget)
    [prompt] = short.report.prompts
    assert standing(short.report)["good"] == (4, 4)
    assert prompt.comparison is not None
    assert prompt.adopted == GOOD.hash
    assert short.report.tokens <= budget
    none = await searched(tmp_path / "none", client([BAD]), [USELESS, GOOD], tokens=10)
    assert none.adopted == {}
    assert "tokens do not suffice" in none.report.prompts[0].why


@pytest.mark.parametrize("ended", [0, 1, 7, 23, 40])
async def test_a_killed_search_ends_with_the_same_report_and_pays_nothing_twice(
    tmp_path: Path, ended: int
) -> None:
    writes = {"phrase": WRITER, "answer": "<prompt>\nWork it out.\n</prompt>"}
    more: dict[str, Any] = {"propose": 1, "proposer": "llm", "runs": 40}
    whole = await searched(tmp_path / "whole", client([writes, BAD]), [USELESS], **more)
    folder, deployment = tmp_path / "killed", client([writes, BAD])
    # A kill leaves a log that ends anywhere, here within a line, and a bus that has the runs.
    await searched(folder, deployment, [USELESS], concurrency=3, **more)
    lines = (folder / LOG).read_bytes().splitlines(keepends=True)
    last_line = [n for n, line in enumerate(lines) if b'"played"' in line][ended]
    (folder / LOG).write_bytes(b"".join(lines[: last_line + 1]) + lines[last_line + 1][:20])
    paid = {run_id: len(entries) for run_id, entries in deployment.ledger.items()}
    again = await searched(folder, deployment, [USELESS], **more)
    assert again.report == whole.report
    admitted = Counter(
        json.loads(line)["run_id"]
        for line in (folder / LOG).read_bytes().splitlines()
        if b'"admitted"' in line
    )
    assert set(admitted.values()) == {1}
    assert len(admitted) == again.report.runs
    assert all(len(deployment.ledger[run_id]) == calls for run_id, calls in paid.items())


async def test_a_finished_search_makes_no_request_when_run_again(tmp_path: Path) -> None:
    first = await searched(tmp_path, client([BAD]), [GOOD])
    idle = client([BAD])
    assert (await searched(tmp_path, idle, [GOOD])).report == first.report
    assert idle.runs == {}


async def test_an_unused_prompt_is_reported(tmp_path: Path) -> None:
    """For example with a chat template that omits the system text: no candidate changes
    anything."""

    class Deaf(LocalClient):
        async def submit(self, run: Run) -> bool:
            return await super().submit(run.model_copy(update={"prompt_files": {}, "prompts": {}}))

    watch = Watched()
    await searched(tmp_path / "deaf", Deaf(client().pools), [GOOD], watch=watch)
    assert any("no candidate changed a single token" in message for message in watch.messages)
    heard = Watched()
    await searched(tmp_path / "heard", client(), [GOOD], watch=heard)
    assert not any("single token" in message for message in heard.messages)


async def test_a_search_outlasts_a_refused_admission_and_an_outage(tmp_path: Path) -> None:
    deployment, watch = client([BAD]), Watched()
    deployment.refuse = [BusUnavailable("the bus is away")]
    result = await searched(tmp_path, deployment, [GOOD], watch=watch)
    assert result.adopted
    assert watch.messages.count("the bus is away") == 1
    assert watch.runs == watch.expected == result.report.runs


async def test_a_run_gets_its_full_time_once_admitted(tmp_path: Path) -> None:
    deadlines: dict[str, list[float]] = {}

    class Noting(LocalClient):
        async def submit(self, run: Run) -> bool:
            deadlines.setdefault(run.id, []).append(run.deadline)
            return await super().submit(run)

    deployment = Noting(client([BAD]).pools)
    deployment.refuse = [Overloaded("full")]
    await searched(tmp_path, deployment, [GOOD])
    [(refused, admitted)] = [times for times in deadlines.values() if len(times) > 1]
    assert admitted > refused
    assert len(deadlines) == len(deployment.runs), "a refused run is asked for by the same id"


@pytest.mark.parametrize("ended", ["at once", "when a worker was back"])
async def test_a_run_that_expired_while_no_search_waited_is_repeated_and_its_tokens_count(
    tmp_path: Path, ended: str
) -> None:
    deployment = client([BAD])
    whole = await searched(tmp_path / "whole", client([BAD]), [GOOD])
    first = await searched(tmp_path / "a", deployment, [GOOD])
    lines = (tmp_path / "a" / LOG).read_bytes().splitlines(keepends=True)
    lapsed = json.loads(lines[0])["run_id"]
    (tmp_path / "a" / LOG).write_bytes(lines[0])
    trajectory = deployment.ended[lapsed]
    run = trajectory.run.model_copy(update={"deadline": 1.0})
    at = 1.0 if ended == "at once" else time.time() + 60
    deployment.ended[lapsed] = trajectory.model_copy(
        update={"outcome": Outcome.DEADLINE, "ended": at, "run": run}
    )
    again = await searched(tmp_path / "a", deployment, [GOOD])
    used = [entry.usage for entry in deployment.ledger[lapsed] if entry.usage is not None]
    tokens = sum(usage.prompt + usage.completion for usage in used)
    assert first.report == whole.report
    assert again.report.tokens == whole.report.tokens + tokens
    assert again.report.prompts[0].comparison == whole.report.prompts[0].comparison


def test_a_damaged_log_line_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text('{"type":"admitted","key":["a","b"],"run_id":"c"}\n{"type":"x"}\n')
    with (
        pytest.raises(TrainingError, match=r"runs\.jsonl:2: the line is damaged"),
        RunLog(tmp_path),
    ):
        pass
