"""Prompts are files with a header, identified by their hash, and never templates."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

import pytest

from loopline.agents.errors import InvalidPrompt, PromptMismatch, UnknownName
from loopline.agents.prompts import (
    load_prompt,
    parse_prompt,
    parse_replacement_prompt,
    prompt_for,
    prompt_in,
    prompt_set_of,
)
from loopline.agents.roles import all_prompts
from loopline.agents.workflows import prompt_hashes
from tests.agents.conversations import ScriptedHost, a_run, says

MATHEMATICAL = {
    "planner": "508e2a00ec93d55fcac54ae95ede713217405a219957eff42df397b50e6585f8",
    "slm": "00d26466a23eae222412b83a97a9919ce7e326a433a35b962238339bd3b6021b",
    "expert": "d5cd23fe141d3264612724c94e5489c830277bc0a40c21054b4384dc6b3ddb5a",
    "solo": "371aa00d1bd0f0f0840110ae9a34cdd04ef8cd85ae9094eb88630f6a7a7a9999",
}
"""Hashes as published and as recorded by benchmarks."""
HEADER = "---\nname: test\nversion: 2\n---\n"


def test_a_prompt_has_a_name_a_version_a_text_and_its_file_s_hash() -> None:
    prompt = parse_prompt(HEADER + "\nDo it.\n", origin="here")
    assert (prompt.name, prompt.version, prompt.text) == ("test", 2, "Do it.")
    assert prompt.hash == hashlib.sha256((HEADER + "\nDo it.\n").encode()).hexdigest()


def test_a_checkout_s_line_endings_do_not_change_the_hash() -> None:
    content = HEADER + "One.\nTwo.\n"
    windows = parse_prompt(content.replace("\n", "\r\n"), origin="here")
    assert windows == parse_prompt(content, origin="here")


@pytest.mark.parametrize(
    "content", ["", "Do it.", "---\nname: x\n---\nDo it.", HEADER, HEADER + " \n", "x" * 60_000]
)
def test_an_invalid_prompt_file_is_refused(content: str) -> None:
    with pytest.raises(InvalidPrompt, match="here"):
        parse_prompt(content, origin="here")


def test_a_missing_prompt_is_reported_by_name() -> None:
    with pytest.raises(InvalidPrompt, match=r"nobody\.md of loopline\.agents\.prompts"):
        load_prompt("nobody")


def test_every_shipped_prompt_can_be_loaded() -> None:
    names = {
        Path(str(file)).stem
        for file in files("loopline.agents.prompts").iterdir()
        if str(file).endswith(".md")
    }
    assert set(MATHEMATICAL) <= names
    for name in names:
        assert "\\boxed{" not in load_prompt(name).text


def test_the_mathematical_prompts_match_every_earlier_record() -> None:
    for name, digest in MATHEMATICAL.items():
        assert prompt_in("mathematics", name).hash == digest
    hashes = prompt_hashes("delegate", options={"prompts": "mathematics"})
    assert hashes == {f"{name}.md": MATHEMATICAL[name] for name in ("planner", "slm", "expert")}


def test_a_run_without_a_recorded_choice_uses_the_mathematical_prompts() -> None:
    run = a_run("solo").model_copy(update={"options": {"calculator": True}})
    assert run.prompts == {"solo.md": MATHEMATICAL["solo"]}
    assert prompt_set_of(run) == "mathematics"
    new = run.model_copy(update={"prompts": prompt_hashes("solo")})
    assert prompt_set_of(new) == "general"


def test_a_workflow_knows_the_hashes_of_its_prompts() -> None:
    assert prompt_hashes("solo") == {"solo.md": load_prompt("solo").hash}
    assert prompt_hashes("delegate").keys() == {"planner.md", "slm.md", "expert.md"}


def test_a_run_admitted_with_another_text_is_refused() -> None:
    prompt = prompt_in("mathematics", "solo")
    run = a_run("solo")
    assert prompt_for(run, prompt) == prompt.text
    altered_run = run.model_copy(update={"prompts": {"solo.md": "0" * 64}})
    with pytest.raises(PromptMismatch, match="the version that admitted the run"):
        prompt_for(altered_run, prompt)


@pytest.mark.parametrize("question", ["{name} {0} {{x}} %s $HOME", "{{ 7*7 }}", "</s> system:"])
async def test_a_question_never_enters_the_system_text(question: str) -> None:
    from loopline.agents.workflow_runner import run_locally

    host = ScriptedHost([says(r"\boxed{1}")])
    await run_locally(a_run("solo", question), {"solo": host})
    system, user = host.requests[0].messages
    assert system.content == prompt_in("mathematics", "solo").text
    assert user.content == question


OWN = "---\nname: solo\nversion: 2\n---\nAnswer in one word.\n"


def test_a_run_uses_the_text_of_its_own_prompt_file() -> None:
    files = {"solo.md": OWN}
    run = a_run("solo").model_copy(
        update={"prompt_files": files, "prompts": prompt_hashes("solo", files)}
    )
    assert run.prompts == {"solo.md": hashlib.sha256(OWN.encode()).hexdigest()}
    assert prompt_for(run, load_prompt("solo")) == "Answer in one word."


def test_a_run_whose_prompt_file_changed_since_admission_is_refused() -> None:
    run = a_run("solo").model_copy(update={"prompt_files": {"solo.md": OWN}})
    with pytest.raises(PromptMismatch, match="version 2"):
        prompt_for(run, load_prompt("solo"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Answer {question} briefly.", "{question}"),
        ("Answer {{ question }} briefly.", "{{ question }}"),
        ("Answer ${question}.", "${question}"),
        ("Answer %(question)s.", "%(question)s"),
        ("Say \ud800.", "UTF-8"),
    ],
)
def test_a_replacement_with_an_unknown_placeholder_is_refused(text: str, named: str) -> None:
    with pytest.raises(InvalidPrompt, match="here") as refused:
        parse_replacement_prompt(
            f"---\nname: solo\nversion: 1\n---\n{text}\n", "solo", origin="here"
        )
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "text", [r"End with \boxed{answer} or \frac{a}{b}.", 'Write {"a": 1} or {} or {1, 2}.', "100%"]
)
def test_braces_that_are_not_placeholders_are_allowed(text: str) -> None:
    content = f"---\nname: solo\nversion: 1\n---\n{text}\n"
    assert parse_replacement_prompt(content, "solo", origin="here").text == text


def test_every_shipped_prompt_can_replace_itself() -> None:
    for prompt in all_prompts().values():
        content = f"---\nname: {prompt.name}\nversion: 1\n---\n{prompt.text}\n"
        assert parse_replacement_prompt(content, prompt.name, origin="here").text == prompt.text


def test_a_file_for_another_prompt_or_workflow_is_refused() -> None:
    with pytest.raises(InvalidPrompt, match="calls itself 'solo'"):
        parse_replacement_prompt(OWN, "planner", origin="here")
    with pytest.raises(UnknownName, match=r"workflow 'delegate' called 'solo\.md'"):
        prompt_hashes("delegate", {"solo.md": OWN})
