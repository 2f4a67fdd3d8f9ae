"""A run as a page: it is complete, harmless and small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import Call, Candidate, Outcome, Run, Step, StepTimings, Trajectory
from loopline.agents.workflows import agents_of, workflows
from loopline.runtime.observe.learned_tokens import LearnedSequence
from loopline.runtime.observe.recorded_runs import KnownRun
from loopline.runtime.observe.run_page.bounds import (
    CALL_TOKENS,
    MAX_CHARS,
    MAX_STEPS,
    PAGE_CANDIDATES,
    PAGE_TOKENS,
)
from loopline.runtime.observe.run_page.overview import MAX_NODES, MAX_ROWS
from loopline.runtime.observe.run_page.page import render
from loopline.runtime.observe.run_page.tokenizers import Tokenizers
from loopline.runtime.observe.run_page.tokens import ratio_class
from loopline.workers.engines.local.model_files import MICRO_MODELS
from loopline.workers.engines.text.chat_prompt import TextCodec
from loopline.workers.engines.text.tokenizer_codec import make_codec
from tests.agents.conversations import a_run, says
from tests.agents.test_pair import BFS, TO_THE_GOAL, a_task, answer, pair_run, play
from tests.runtime.parsed_page import ParsedPage
from tests.workers.test_engine_runner import new_run, scripted, started

EVIL = "</script></style><script>alert(1)</script><img src=x onerror='alert(2)'>"
MODEL = str(MICRO_MODELS / "slm")


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(MICRO_MODELS / "slm" / "tokenizer.json"))
    return make_codec(backend, backend.get_vocab_size(), "slm")


def wrote(codec: TextCodec, text: str, prompt: str = "What is it?") -> Call:
    """A completion with the micro model's tokenizer; its tokens get less and less likely."""
    ids = codec.encode(text)
    return says(text).model_copy(
        update={
            "prompt_ids": tuple(codec.encode(prompt)),
            "output_ids": tuple(ids),
            "logprobs": tuple(-0.3 * at for at in range(len(ids))),
        }
    )


def a_step(*candidates: Candidate, turn: int = 0, selected: int = 0, **changes: object) -> Step:
    step = Step(
        run_id="run",
        turn=turn,
        agent="solo",
        candidates=candidates,
        selected=selected,
        decision={"kind": "answer", "data": {"answer": "7"}},  # pyright: ignore[reportArgumentType]
        timings=StepTimings(started=1_000.0, ended=1_001.0),
        worker="worker",
    )
    return step.model_copy(update=changes)


def ended(*steps: Step, run: Run | None = None, **changes: object) -> KnownRun:
    trajectory = Trajectory(
        run=run or a_run("solo"),
        steps=steps,
        outcome=Outcome.ANSWERED,
        answer="7",
        ended=1_002.0,
    )
    return KnownRun.whole(trajectory.model_copy(update=changes))


async def a_trajectory(workflow: str) -> Trajectory:
    changes: dict[str, dict[str, Any]] = {
        "pair": {"task": a_task(turns=2)},
        "completion": {"options": {"prompt": "api_call"}},
        "team": {"options": {"team": {"kind": "agent", "name": "writer", "model": "umi"}}},
    }
    options = changes.get(workflow, {}).get("options")
    policies = dict.fromkeys(agents_of(workflow, options=options), "umi")
    async with started(umi=scripted()) as team:
        return await team.play(new_run(workflow, policies, **changes.get(workflow, {})))


# Scripted models create no vectors; tests/runtime/gateway/test_embeddings.py has such runs.
@pytest.mark.parametrize("workflow", sorted({*workflows.names()} - {"embeddings"}))
async def test_a_run_of_any_workflow_becomes_a_page_with_all_its_steps(workflow: str) -> None:
    trajectory = await a_trajectory(workflow)
    parsed = ParsedPage(render(KnownRun.whole(trajectory)))
    parsed.require_harmless()
    assert len(parsed.of("section", "step")) == len(trajectory.steps) > 0
    assert trajectory.run.task.prompt in parsed.text
    for step in trajectory.steps:
        for call in step.calls:
            assert call.text.strip() in parsed.text
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


async def test_the_page_shows_all_candidates_and_the_executed_path() -> None:
    trajectory, _, _ = await play(
        pair_run(a_task(), candidates=3),
        tool=[["nonsense", "#### [step(D)]", BFS]],
        plan=[[answer("D"), answer("UU"), TO_THE_GOAL]],
    )
    parsed = ParsedPage(render(KnownRun.whole(trajectory)))
    candidates = parsed.of("details", "candidate")
    assert len(candidates) == 6
    open_candidates = [attributes for attributes in candidates if "open" in attributes]
    assert [attributes["id"] for attributes in open_candidates] == ["s0-0-c2", "s1-0-c2"]
    assert all("chosen" in attributes["class"] for attributes in open_candidates)
    assert len(parsed.of("circle", "spot")) == 6
    assert len(parsed.of("circle", "chosen")) == 2
    # From the executed candidate to the three of the next turn, one of which was executed.
    assert (len(parsed.of("path", "way")), len(parsed.of("path", "aside"))) == (1, 2)
    assert {attributes["href"] for attributes in parsed.of("a")} == {
        f"#{attributes['id']}" for attributes in candidates
    }
    for text in ("nonsense", "#### [step(D)]", TO_THE_GOAL):
        assert text in parsed.text
    assert "local.format" in parsed.text
    assert parsed.of("rect", "plus")


def test_no_text_of_a_model_a_tool_or_a_user_is_active_content(codec: TextCodec) -> None:
    call = wrote(codec, EVIL, EVIL)
    tool = {"tool": EVIL, "arguments": {EVIL: EVIL}, "output": {"error": EVIL}}
    step = a_step(
        Candidate(calls=(call,), action={EVIL: EVIL}, reward_parts={EVIL: 1.0}),
        Candidate(calls=(says(EVIL),), reward_parts={EVIL: float("nan")}),
        agent=EVIL,
        worker=EVIL,
        input={"type": EVIL, "problem": EVIL, EVIL: EVIL},
        observation={"turns": [[tool]], "text": EVIL, EVIL: EVIL, "failure": {EVIL: EVIL}},
    )
    run = a_run("solo", EVIL).model_copy(
        update={
            "id": EVIL,
            "workflow": EVIL,
            "policies": {EVIL: EVIL},
            "tags": {EVIL: EVIL},
            "parent": EVIL,
        }
    )
    evil_run = ended(step, run=run, answer=EVIL, reason=EVIL, agent_rewards={EVIL: 1.0})
    for known_run in (
        evil_run,
        ended(step, run=run, outcome=Outcome.ERROR, answer=None, reason=EVIL),
    ):
        parsed = ParsedPage(render(known_run, Tokenizers([MODEL])))
        parsed.require_harmless()
        assert parsed.text.count("<script>alert(1)</script>") > 15


def test_control_characters_are_shown_as_escapes() -> None:
    text = "left\u202eright\x1b[2J\x00"
    page = render(ended(a_step(Candidate(calls=(says(text),)))))
    assert "left\\u202eright\\u001b[2J\\u0000" in page
    assert not set(text) & set("\u202e\x1b\x00") & set(page)


def test_reasoning_is_set_apart_from_the_answer() -> None:
    call = says("<think>Is it 90?</think>It is 96.").model_copy(update={"reasoning": "Hm & so."})
    page = render(ended(a_step(Candidate(calls=(call,)))))
    assert '<div class="said thought">Hm &amp; so.</div>' in page
    assert '<span class="thought">&lt;think&gt;Is it 90?&lt;/think&gt;</span>It is 96.' in page


def test_each_token_shows_its_log_probability(codec: TextCodec) -> None:
    call = wrote(codec, "Two sorts of tickets, then the sum.\nThe answer is 12.")
    parsed = ParsedPage(render(ended(a_step(Candidate(calls=(call,)))), Tokenizers([MODEL])))
    tokens = [attributes for attributes in parsed.of("span", "t") if "title" in attributes]
    assert len(tokens) == len(call.output_ids)
    for token, id_, logprob in zip(tokens, call.output_ids, call.logprobs, strict=True):
        assert token["title"].startswith(f"id {id_}; log p {logprob:.4f}".replace("-", "−"))
    assert tokens[0]["class"].split()[:2] == ["t", "p0"]
    assert "p5" in tokens[-1]["class"]
    assert call.text in parsed.text
    assert "What is it?" in parsed.text, "what the model read is there, too"


def test_a_tokenizer_that_does_not_reproduce_the_text_is_not_used(codec: TextCodec) -> None:
    call = wrote(codec, "Seven.").model_copy(update={"text": "Eight."})
    page = render(ended(a_step(Candidate(calls=(call,)))), Tokenizers([MODEL]))
    parsed = ParsedPage(page)
    assert "Eight." in parsed.text
    assert "Seven" not in parsed.text
    assert "The text of single tokens of script is not known" in parsed.text
    # Their log-probabilities are shown nevertheless, one cell each.
    assert len(parsed.of("i", "t")) == len(call.output_ids)


def learned_from(call: Call, *, step: int = 1, sample: str = "/0.0/solo#0") -> LearnedSequence:
    count = len(call.output_ids)
    return LearnedSequence(
        run_id="run",
        sample=f"run{sample}",
        step=step,
        policy="shared",
        version=step - 1,
        sampled_version=0,
        advantage=1.25 * step,
        ids=(*call.prompt_ids, *call.output_ids),
        learned=(*[False] * len(call.prompt_ids), *[True] * count),
        behaviour=call.logprobs,
        proximal=tuple(logprob + 0.5 for logprob in call.logprobs),
        trained=tuple(
            logprob + (2.0 if at == 0 else 0.0) for at, logprob in enumerate(call.logprobs)
        ),
        weights=(1.5,) * count,
        clipped=tuple(at == 0 for at in range(count)),
    )


def test_the_page_shows_each_token_that_a_training_learned_from(codec: TextCodec) -> None:
    call, other_call = wrote(codec, "The answer is 12."), wrote(codec, "The answer is 13.")
    known_run = ended(a_step(Candidate(calls=(call,)), Candidate(calls=(other_call,))))
    records = [learned_from(call), learned_from(call, step=3)]
    parsed = ParsedPage(render(known_run, Tokenizers([MODEL]), records))
    first, *rest = [attributes for attributes in parsed.of("span", "m1") if "title" in attributes]
    assert len(rest) + 1 == len(call.output_ids)
    assert {"r6", "cut-off"} <= set(first["class"].split())
    assert "π_θ/π_behav 7.389, weight 1.5; π_θ/π_prox 4.482; no gradient" in first["title"]
    assert all("r3" in attributes["class"] for attributes in rest)
    assert "step 3, shared v2, advantage 3.75" in parsed.text, "the last step that learned from it"
    masked = [attributes for attributes in parsed.of("span", "m0") if "title" in attributes]
    assert len(masked) == len(other_call.output_ids)
    assert {attributes["for"] for attributes in parsed.of("label")} == {
        "by-likely", "by-moved", "by-mask", "by-plain",
    }  # fmt: skip


def test_a_masked_token_is_not_shown_as_learned(codec: TextCodec) -> None:
    call = wrote(codec, "The answer is 12.")
    whole = learned_from(call)
    lists = ("behaviour", "proximal", "trained", "weights", "clipped")
    masked = {name: getattr(whole, name)[1:] for name in lists}
    flags = [*whole.learned]
    flags[len(call.prompt_ids)] = False
    record = LearnedSequence.model_validate({**whole.model_dump(), **masked, "learned": flags})
    known_run = ended(a_step(Candidate(calls=(call,))))
    parsed = ParsedPage(render(known_run, Tokenizers([MODEL]), [record]))
    first, second, *_ = [
        attributes for attributes in parsed.of("span", "t") if "title" in attributes
    ]
    assert "m0" in first["class"].split()
    assert "weight" not in first["title"]
    assert {"m1", "r3"} <= set(second["class"].split())


def test_infinite_and_undefined_rewards_do_not_break_the_page() -> None:
    worth = ({"a": 1e308, "b": 1e308}, {"a": -1e308}, {"a": float("nan")}, {"total": 1e308})
    page = render(ended(a_step(*[Candidate(reward_parts=parts) for parts in worth])))
    assert "no number" in page
    assert 'width="nan"' not in page


def test_many_candidates_that_were_not_executed_are_folded_together() -> None:
    candidates = [Candidate(calls=(says(f"text {at}"),), reward_parts={"a": at}) for at in range(9)]
    parsed = ParsedPage(render(ended(a_step(*candidates, selected=4))))
    assert "8 other candidates, rewards 0 to 8" in parsed.text
    assert "open" not in parsed.of("details", "others")[0]
    assert [attributes["id"] for attributes in parsed.of("details", "candidate")][:2] == [
        "s0-0-c4",
        "s0-0-c0",
    ]


def test_the_page_says_that_a_training_has_no_token_of_the_run() -> None:
    known_run = ended(a_step(Candidate(calls=(says("7"),))))
    assert "has no token of this run" in render(known_run, None, [])
    assert "has no token of this run" not in render(known_run)


@pytest.mark.parametrize(
    ("ratio", "look"),
    [(0.0, 0), (0.5, 1), (0.8, 2), (0.95, 3), (1.0, 3), (1.05, 3), (1.1, 4), (1.3, 5), (9.0, 6)],
)
def test_the_colour_of_a_ratio_depends_on_its_distance_from_one(ratio: float, look: int) -> None:
    assert ratio_class(ratio) == look


@pytest.mark.slow
def test_huge_texts_are_truncated_and_the_page_says_so() -> None:
    calls = [says("x" * 100_000) for _ in range(300)]
    candidates = [Candidate(calls=(call,), reward_parts={"team": 0.5}) for call in calls]
    page = render(ended(a_step(*candidates, selected=299)))
    assert len(page) < 4_000_000
    parsed = ParsedPage(page)
    assert f"… {100_000 - MAX_CHARS:,} characters more" in parsed.text
    assert "300 long texts truncated" in parsed.text
    # The executed candidate gets its space first.
    assert "x" * MAX_CHARS in parsed.text[parsed.text.index("candidate 299") :]


def test_tokens_are_coloured_up_to_a_limit_which_the_page_reports(codec: TextCodec) -> None:
    long = wrote(codec, "The answer is 12. " * 2_000)
    count = PAGE_TOKENS // CALL_TOKENS + 3
    known_run = ended(a_step(*[Candidate(calls=(long,)) for _ in range(count)]))
    page = render(known_run, Tokenizers([MODEL]))
    assert page.count('title="id ') == PAGE_TOKENS
    assert f"{count} completions not coloured, or only at the beginning" in page


def test_executed_candidates_are_shown_whole_among_very_many() -> None:
    """The limits of texts and tokens do not apply here."""
    candidate = Candidate(calls=(says("7"),), reward_parts={"total": 1.0, "progress": 0.5})
    steps = [a_step(*[candidate] * 50, turn=at) for at in range(PAGE_CANDIDATES // 50 + 2)]
    page = render(ended(*steps))
    parsed = ParsedPage(page)
    assert page.count('<div class="worth">') == PAGE_CANDIDATES
    assert len(parsed.of("details", "candidate")) == 50 * len(steps), "each has a head"
    for section in page.split('<details class="candidate chosen"')[1:]:
        assert '<div class="worth">' in section.split("</details>")[0]
    assert "100 candidates shown without details" in parsed.text


def test_the_page_of_very_many_steps_shows_the_first_ones_and_says_so() -> None:
    steps = [a_step(Candidate(calls=(says("7"),)), turn=at) for at in range(MAX_STEPS + 10)]
    parsed = ParsedPage(render(ended(*steps)))
    assert len(parsed.of("section", "step")) == MAX_STEPS
    assert f"The first {MAX_STEPS} of {MAX_STEPS + 10} steps are shown." in parsed.text


def test_drawings_that_leave_out_steps_say_so() -> None:
    steps = [a_step(Candidate(calls=(says("7"),)), turn=at) for at in range(MAX_ROWS + 60)]
    text = ParsedPage(render(ended(*steps))).text
    assert f"The first {MAX_ROWS} of {MAX_ROWS + 60} steps are drawn." in text
    assert f"; the first {MAX_ROWS} of {MAX_ROWS + 60} turns are drawn" in text
    few = ParsedPage(render(ended(*steps[:MAX_ROWS]))).text
    assert "are drawn" not in few


def test_a_drawn_turn_that_leaves_out_candidates_says_so() -> None:
    """The executed one is never left out."""
    candidates = [Candidate(calls=(says("7"),)) for _ in range(MAX_NODES + 16)]
    last = len(candidates) - 1
    parsed = ParsedPage(render(ended(a_step(*candidates, selected=last))))
    assert f"of a turn's candidates (up to {MAX_NODES + 16}) {MAX_NODES} are drawn" in parsed.text
    assert len(parsed.of("circle", "spot")) == MAX_NODES
    assert len(parsed.of("circle", "chosen")) == 1


def test_an_active_run_has_a_page_too() -> None:
    run = a_run("solo")
    assert "Still running: 0 steps so far." in ParsedPage(render(KnownRun(run, (), None))).text
    page = render(KnownRun(run, (a_step(Candidate(calls=(says("7"),))),), None))
    assert "Still running: 1 step so far." in ParsedPage(page).text


def test_steps_without_a_candidate_or_with_an_invalid_selection_are_shown(
    codec: TextCodec,
) -> None:
    failed = a_step(observation={"turns": [], "failure": {"kind": "auth", "message": "wrong key"}})
    strange = a_step(Candidate(), Candidate(), turn=1, selected=7, observation={"turns": 3})
    parsed = ParsedPage(render(ended(failed, strange)))
    parsed.require_harmless()
    assert "wrong key" in parsed.text
    assert len(parsed.of("details", "candidate")) == 2
    assert len(parsed.of("circle", "spot")) == 3


def test_a_damaged_tokenizer_is_reported(codec: TextCodec, tmp_path: Path) -> None:
    from loopline.runtime.errors import InputError

    (tmp_path / "tokenizer.json").write_text("{")
    known_run = ended(a_step(Candidate(calls=(wrote(codec, "7"),))))
    with pytest.raises(InputError, match="its files are damaged"):
        render(known_run, Tokenizers([str(tmp_path)]))
