"""Invalid or unreadable input is reported before a run costs anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.agents.errors import InvalidPrompt
from loopline.agents.prompts import load_prompt
from loopline.runtime.config import settings as config
from loopline.runtime.config.options import validated
from loopline.runtime.errors import FixableError
from loopline.trainers.core.output_folder import lock_output
from loopline.trainers.errors import TrainingError
from loopline.trainers.prompts.candidates import current_candidate, read_variants
from loopline.trainers.prompts.options import PromptsOptions
from loopline.trainers.prompts.output import claim
from loopline.trainers.prompts.preparation import PreparedSearch, prepare_search
from loopline.trainers.prompts.proposals import EvaluatedCandidate, Failure, read_proposal, request
from tests.trainers.prompt_search.local_search import SOLO
from tests.trainers.prompt_search.searching import prompt_file, sums

LIMITS = {
    "runs": 24,
    "tokens": None,
    "held_out": 5,
    "alpha": 0.05,
    "propose": 0,
    "proposer": None,
    "seed": 1,
    "run_seconds": 60.0,
}


def prepare(*variants: Path, profile: str = "scripted", **changes: object) -> PreparedSearch:
    fields = {"workflow": "solo", "output": "out", "variants": variants, **LIMITS, **changes}
    return prepare_search(validated(PromptsOptions, fields), config.load(profile, environ={}))


@pytest.fixture
def terse(tmp_path: Path) -> Path:
    return prompt_file(tmp_path / "variants" / "terse.md", "Answer in one word.", name="solo")


def test_all_prompts_with_candidates_are_searched_in_turn(tmp_path: Path) -> None:
    prompt_file(tmp_path / "a.md", "Plan.", name="planner")
    prompt_file(tmp_path / "b.md", "Solve.", name="slm")
    preparation = prepare(tmp_path, workflow="delegate")
    assert {
        name: [variant.label for variant in variants]
        for name, variants in preparation.candidates.items()
    } == {
        "planner": ["current", "a"],
        "slm": ["current", "b"],
    }
    assert preparation.settings.models == {
        "llm": "scripted:scripted-llm",
        "slm": "scripted:scripted-slm",
    }
    assert len(preparation.questions.train) == 12
    assert len(preparation.questions.held_out) == 5


def test_a_candidate_has_to_beat_the_prompt_of_the_deployment_s_profile(
    tmp_path: Path, terse: Path
) -> None:
    prompt_path = prompt_file(tmp_path / "own.md", "Say it.", name="solo")
    profile = tmp_path / "own.toml"
    profile.write_text(f'extends = "scripted"\n[prompts]\nsolo = "{prompt_path.name}"\n')
    current, challenger = prepare(terse, profile=str(profile)).candidates["solo"]
    assert (current.origin, current.prompt.text) == ("profile", "Say it.")
    assert challenger.label == "terse"


def test_a_file_that_repeats_a_known_text_adds_no_candidate(tmp_path: Path) -> None:
    prompt_file(tmp_path / "a.md", SOLO.text, name="solo", version=9)
    prompt_file(tmp_path / "b.md", "Answer.", name="solo")
    prompt_file(tmp_path / "c.md", "Answer.", name="solo", version=3)
    assert [variant.label for variant in prepare(tmp_path).candidates["solo"]] == ["current", "b"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"Do it.", "must begin with"),
        (b"x" * 60_000, "longer than 50,000 characters"),
        (b"x" * 600_000, "more than 200,000 bytes"),
        (b"---\nname: solo\nversion: 1\n---\n", "no text"),
        (b"---\nname: solo\nversion: 1\n---\nAnswer {question}.\n", "placeholder {question}"),
        (b"---\nname: planner\nversion: 1\n---\nPlan.\n", "for the prompt 'planner'"),
    ],
)
def test_a_hostile_candidate_is_refused_by_name(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "hostile.md").write_bytes(content)
    with pytest.raises(TrainingError, match=says) as refused:
        prepare(tmp_path)
    assert "hostile.md" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompts": ("umi_planner",)}, "has no such prompt; it has: solo"),
        ({"propose": 2}, "--proposer"),
        ({"proposer": "llm"}, "--propose N"),
        ({"propose": 1, "proposer": "gpt"}, "no pool 'gpt'"),
        ({"runs": 1}, "2 candidates need at least 2 runs"),
        ({"held_out": 0}, "--held-out"),
        ({"alpha": 1.0}, "--alpha"),
        ({"tokens": 0}, "--tokens"),
        ({"seed": -1}, "--seed"),
        ({"game": "plan_path"}, "--game: 'solo' plays no puzzles: give --workflow pair"),
        ({"dataset": "gsm"}, "--dataset gsm: Input should be 'worlds' or"),
        ({"dataset": ""}, "--dataset : Input should be 'worlds' or"),
        ({"dataset": "worlds"}, "'solo' offers its models no tools"),
        ({"dataset": "worlds", "game": "sudoku"}, "--dataset and --game"),
        ({"size": 4}, "name a --game"),
        ({"data": Path("sums.jsonl"), "size": 4}, "name a --game"),
        ({"profile": "umi_scripted"}, "role 'solo'|pool"),
    ],
)
def test_invalid_options_are_reported(terse: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(FixableError, match=says):
        prepare(terse, **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "greedy"), [({}, True), ({"candidates": 2}, False), ({"greedy": False}, False)]
)
def test_a_team_s_prompts_are_judged_by_greedy_play_by_default(
    tmp_path: Path, options: dict[str, object], greedy: bool
) -> None:
    prompt_file(tmp_path / "plan.md", "Plan.", name="plan_agent")
    arguments = {"workflow": "pair", "game": "plan_path", "profile": "petting", "options": options}
    assert prepare(tmp_path, **arguments).settings.options["greedy"] is greedy  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"game": "chess"}, "known: plan_path"),
        ({"game": ""}, "known: plan_path"),
        ({"dataset": "wordproblems"}, "--dataset: 'pair' answers no questions"),
        ({"data": Path("sums.jsonl")}, "--data: 'pair' answers no questions"),
        ({"prompts": ("coder",)}, "the team that plays has no such prompt; it has: tool_agent"),
    ],
)
def test_tasks_that_no_team_can_play_are_reported(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    plan = prompt_file(tmp_path / "plan.md", "Plan.", name="plan_agent")
    with pytest.raises(TrainingError, match=says):
        prepare(plan, workflow="pair", profile="petting", **changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("game", ["plan_path", None])
@pytest.mark.parametrize(("setting", "suffix"), [({}, ""), ({"python": True}, "_python")])
def test_a_search_for_a_game_s_agent_selects_the_prompt_that_the_agent_reads(
    tmp_path: Path, setting: dict[str, object], suffix: str, game: str | None
) -> None:
    """The agent has one prompt for calls and one for programs."""
    profile_path = tmp_path / "own.toml"
    profile_path.write_text('extends = "petting"\n[workers.writer]\nroles = ["completion"]\n')
    petting = {"workflow": "pair", "profile": str(profile_path), "game": game, "setting": setting}
    preparation = prepare(**petting, propose=1, proposer="pair")  # pyright: ignore[reportArgumentType]
    assert [*preparation.settings.prompts] == [f"tool_agent{suffix}", f"plan_agent{suffix}"]
    other_prompt = "plan_agent" if suffix else "plan_agent_python"
    with pytest.raises(TrainingError, match=f"--prompt {other_prompt}: .* has no such prompt"):
        prepare(**petting, prompts=(other_prompt,), propose=1, proposer="pair")  # pyright: ignore[reportArgumentType]


def test_a_requested_prompt_without_a_candidate_is_an_error(tmp_path: Path) -> None:
    plan = prompt_file(tmp_path / "a.md", "Plan.", name="planner")
    with pytest.raises(TrainingError, match="--prompt slm: there is no candidate"):
        prepare(plan, workflow="delegate", prompts=("planner", "slm"))


def test_a_deployment_with_only_puzzle_teams_can_search_their_prompts(tmp_path: Path) -> None:
    profile = tmp_path / "puzzles.toml"
    profile.write_text(
        'extends = "petting"\n'
        + "".join(
            f'[workers.{kind}]\nroles = ["plan_agent"]\n' for kind in ("code_team", "math_team")
        )
    )
    plan = prompt_file(tmp_path / "plan.md", "Plan.", name="plan_agent")
    preparation = prepare(plan, workflow="pair", game="plan_path", profile=str(profile))
    assert list(preparation.candidates) == ["plan_agent"]


def test_a_search_without_a_candidate_says_where_to_get_some() -> None:
    with pytest.raises(TrainingError, match=r"give --variants .* --propose N"):
        prepare()


def test_a_file_with_too_few_questions_is_refused_with_the_runs_that_it_allows(
    tmp_path: Path, terse: Path
) -> None:
    data = sums(tmp_path / "sums.jsonl", 20)
    with pytest.raises(TrainingError, match=r"--runs 200: .* fewer runs \(about \d+\)"):
        prepare(terse, data=data, runs=200)
    with pytest.raises(TrainingError, match="--held-out 90"):
        prepare(terse, data=data, held_out=90)


def test_only_a_restart_replaces_another_search_in_a_folder(tmp_path: Path, terse: Path) -> None:
    preparation, other_preparation = prepare(terse), prepare(terse, seed=2)
    with lock_output(tmp_path / "out"):
        claim(tmp_path / "out", preparation.settings, preparation.candidates, restart=False)
        claim(tmp_path / "out", preparation.settings, preparation.candidates, restart=False)
        with pytest.raises(TrainingError, match=r"started with other settings: .*seed"):
            claim(
                tmp_path / "out",
                other_preparation.settings,
                other_preparation.candidates,
                restart=False,
            )
        claim(
            tmp_path / "out", other_preparation.settings, other_preparation.candidates, restart=True
        )
    (tmp_path / "other" / "search.json").mkdir(parents=True)
    with pytest.raises(TrainingError, match=r"search\.json can't be read .*: remove it"):
        claim(tmp_path / "other", preparation.settings, preparation.candidates, restart=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(TrainingError, match="already contains other files"):
        claim(tmp_path / "mine", preparation.settings, preparation.candidates, restart=True)


def test_a_search_started_with_another_split_cannot_be_resumed(tmp_path: Path) -> None:
    """Such searches required their winners to win on the puzzles that `bench puzzles` measures
    with."""
    variant = prompt_file(tmp_path / "plan.md", "Plan.", name="plan_agent")
    preparation = prepare(variant, workflow="pair", game="plan_path", size=5, profile="petting")
    earlier = preparation.settings.model_copy(
        update={"source": "plan_path, generated from seed 1", "questions_sha256": "0" * 64}
    )
    output = tmp_path / "out"
    with lock_output(output):
        claim(output, earlier, preparation.candidates, restart=False)
        with pytest.raises(TrainingError, match=r"source \(.* → .*train and validation split"):
            claim(output, preparation.settings, preparation.candidates, restart=False)


def test_two_searches_never_share_a_folder(tmp_path: Path) -> None:
    with (
        lock_output(tmp_path),
        pytest.raises(TrainingError, match="another command is using the folder"),
        lock_output(tmp_path),
    ):
        pass


def test_too_many_variants_are_refused(tmp_path: Path) -> None:
    for number in range(65):
        prompt_file(tmp_path / f"{number}.md", f"Answer {number}.", name="solo")
    with pytest.raises(TrainingError, match="65 files are more than 64"):
        read_variants([tmp_path], {"solo"})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("I would rather not.", "no text between"),
        ("<prompt>\n\n</prompt>", "no text"),
        ("<prompt>\nPut {{question}} here.\n</prompt>", "placeholder"),
        (f"<prompt>\n{'x' * 60_000}\n</prompt>", "longer than"),
        (f"<prompt>\n{SOLO.text}\n</prompt>", "the text is that of current"),
        ("<prompt>\n" * 20_000, "no text between"),
        ("<prompt>\nSay \ud800.\n</prompt>", "UTF-8"),
    ],
)
def test_a_proposal_without_a_prompt_is_refused(answer: str, says: str) -> None:
    prompts = [current_candidate(SOLO, None)]
    with pytest.raises(InvalidPrompt, match=says):
        read_proposal(
            answer, of=SOLO, label="proposal-1", origin="x", candidates=prompts, cut=False
        )


def test_a_truncated_proposal_says_which_limit_to_raise() -> None:
    with pytest.raises(InvalidPrompt, match="max_tokens"):
        read_proposal(
            "<prompt>\nx\n</prompt>", of=SOLO, label="p", origin="x", candidates=[], cut=True
        )


def test_a_proposer_reads_a_bounded_part_of_hostile_texts() -> None:
    failures = [Failure("q" * 100_000, "a" * 100_000, "f" * 100_000)] * 50
    text = request(
        EvaluatedCandidate("best", 1, 9), [EvaluatedCandidate("other", 0, 9)] * 50, failures
    )
    assert len(text) < 50_000
    assert "solve 1 of 9" not in text
    assert "solved 1 of 9" in text


def test_the_writer_s_prompt_shows_the_tags_that_the_parser_expects() -> None:
    assert load_prompt("prompt_writer").text.endswith("<prompt>\n</prompt>")
