"""The metrics of tool use, case by case, and under hostile text."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bench.checkers import bfcl
from loopline.bench.checkers.apibench import ApiDatabase, ApiVerdict
from loopline.bench.checkers.python_calls import MAX_CHARS, calls
from loopline.bench.checkers.tool_calls import ToolCall, tool_calls
from loopline.bench.checkers.tool_steps import (
    StepScore,
    ToolStep,
    argument_f1,
    common_subsequence,
    rouge_l,
    score_step,
)
from loopline.bench.datasets.apibench import Api
from loopline.bench.datasets.bfcl import Category, Function, Message, Question, WantedCall
from loopline.bench.report.measures import measured_results
from loopline.bench.results import Result
from tests.bench.tool_cases import (
    API_OUTPUTS,
    APIS,
    ARGUMENTS,
    BFCL,
    OUTPUTS,
    ROUGE,
    STEPS,
    TYPES,
    ReadCall,
)

TOOLS = ("weather", "flights")
HOSTILE = [
    "(" * 15_000,
    "f(" * 9_000,
    "f(a=" * 4_000 + "1" + ")" * 4_000,
    "-" * 15_000 + "1",
    "not " * 4_000 + "x",
    "a." * 9_000 + "f()",
    "1" + "+1" * 9_000,
    "[" * 150 + "]" * 150,
    "lambda: " * 2_000 + "f()",
    "f(a='" + "x" * 18_000,
    "f(\x00)",
    "f('\\d', \ud800)",
    "{" * 5_000,
    '{"a":' * 3_000,
    "f(a=" + "9" * 5_000 + ")",
    "f()" * 6_000,
    "x" * (MAX_CHARS + 1),
]


def test_there_are_at_least_60_handwritten_cases() -> None:
    """The tables are the specification; they must not shrink unnoticed."""
    tables = (ARGUMENTS, STEPS, ROUGE, OUTPUTS, API_OUTPUTS, BFCL)
    assert sum(len({str(case) for case in table}) for table in tables) >= 160


@pytest.mark.parametrize(("predicted", "reference", "f1"), ARGUMENTS)
def test_the_argument_f1_agrees_with_the_table(
    predicted: str | dict[str, Any] | None, reference: str | dict[str, Any] | None, f1: float | None
) -> None:
    """Key and value 1, only the key ½; None if the reference has no readable arguments."""
    expected = None if f1 is None else pytest.approx(f1)
    assert argument_f1(predicted, reference) == expected


@pytest.mark.parametrize(("predicted", "reference", "expected"), STEPS)
def test_each_step_is_scored_as_in_the_table(
    predicted: ToolStep,
    reference: ToolStep,
    expected: tuple[bool, bool | None, bool, float | None, float | None],
) -> None:
    """Five numbers per step, without those that do not apply to the reference."""
    score = score_step(predicted, reference, TOOLS)
    assert (score.plan, score.action, score.hallucinated, score.argument_f1) == expected[:4]
    assert score.rouge_l == (None if expected[4] is None else pytest.approx(expected[4]))


def means(*scores: StepScore) -> dict[str, tuple[float, int]]:
    """As in a report: each with the number of its steps."""
    results = [Result.model_construct(measures=score.measures) for score in scores]
    measures = measured_results(results, seed=1)
    return {name: (mean["estimate"], mean["n"]) for name, mean in measures.items()}


def test_the_means_are_over_the_steps_that_each_metric_applies_to() -> None:
    """All steps, call steps, finish steps; a metric without steps is left out, not 0."""
    scores = [score_step(predicted, reference, TOOLS) for predicted, reference, _ in STEPS]
    assert means(*scores) == {
        "plan_accuracy": (pytest.approx(12 / 20), 20),
        "action_match": (pytest.approx(2 / 10), 10),
        "hallucination": (pytest.approx(4 / 20), 20),
        "argument_f1": (pytest.approx(1.5 / 10), 10),
        "rouge_l": (pytest.approx((1 + 1 / 3) / 7), 7),
    }
    assert means(StepScore(True, False)) == {"plan_accuracy": (1.0, 1), "hallucination": (0.0, 1)}


def test_a_reference_without_a_decision_is_an_error() -> None:
    """No call could match it; counting it would be a lie."""
    with pytest.raises(ValueError, match="must call, finish or give up"):
        score_step(ToolStep("call"), ToolStep(), TOOLS)


@pytest.mark.parametrize(("prediction", "reference", "f"), ROUGE)
def test_rouge_l_agrees_with_the_table(prediction: str, reference: str, f: float) -> None:
    assert rouge_l(prediction, reference) == pytest.approx(f)


def test_rouge_l_agrees_with_the_rouge_score_package() -> None:
    """On the table and on 600 texts of few words, so that subsequences are long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rouge_score.rouge_scorer import RougeScorer

    scorer: Any = RougeScorer(["rougeL"], use_stemmer=False)
    rng = random.Random(5)
    words = ["the", "Sun", "rises,", "over", "3.5", "hills", "été", "don't", "A_b", "…"]
    pairs = [case[:2] for case in ROUGE] + [
        tuple(" ".join(rng.choices(words, k=rng.randrange(40))) for _ in range(2))
        for _ in range(600)
    ]
    for prediction, reference in pairs:
        score = scorer.score(reference, prediction)["rougeL"].fmeasure
        assert rouge_l(prediction, reference) == pytest.approx(score, abs=1e-12)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_the_common_subsequence_agrees_with_the_textbook_table(
    first: list[str], second: list[str]
) -> None:
    """Bit-parallel compared with the quadratic table."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, left_token in enumerate(first):
        for j, right_token in enumerate(second):
            same = table[i][j] + 1
            table[i + 1][j + 1] = (
                same if left_token == right_token else max(table[i][j + 1], table[i + 1][j])
            )
    assert common_subsequence(first, second) == table[-1][-1]


@pytest.mark.parametrize(("text", "expected"), OUTPUTS)
def test_calls_are_read_from_an_output_as_in_the_table(
    text: str, expected: list[ReadCall] | None
) -> None:
    """Python and JSON; only small arithmetic is evaluated."""
    read = tool_calls(text)
    call_parts = read and [(call.name, call.arguments, call.positional) for call in read]
    assert (None if read is None else list(call_parts or ())) == expected


def database(hub: Any = "huggingface", apis: list[tuple[str, str]] = APIS) -> ApiDatabase:
    return ApiDatabase(
        hub, [Api(domain=domain, api_name="x", api_call=call) for call, domain in apis]
    )


@pytest.mark.parametrize(("output", "domain", "verdict"), API_OUTPUTS)
def test_each_api_call_is_judged_as_in_the_table(
    output: str, domain: str, verdict: ApiVerdict
) -> None:
    assert database().check(output, domain) is verdict


def test_a_call_with_an_unknown_name_never_matches_by_its_arguments() -> None:
    """The published scorer continues with the call that it checked last."""
    verdict = database().check("f(AutoModel.load('org/model'))", "Features")
    assert verdict is ApiVerdict.UNKNOWN_FUNCTION
    assert verdict.hallucinated


def test_on_torch_hub_only_repository_and_model_decide_and_not_the_tag() -> None:
    """Positional or by keyword; even if a positional argument follows a keyword."""
    hub = database("torchhub", [
        ("torch.hub.load(repo_or_dir='pytorch/vision', model='resnet18', pretrained=True)", "C"),
        ("torch.hub.load(repo_or_dir='szq/MEAL', 'meal', model='meal_b0', pretrained=True)", "C"),
    ])  # fmt: skip
    for call in (
        "torch.hub.load('pytorch/vision:v0.10.0', 'resnet18', pretrained=False)",
        "model = torch.hub.load('pytorch/vision', model='resnet18')",
        "torch.hub.load(repo_or_dir='szq/MEAL', 'meal', model='meal_b0')",
        "torch.hub.load('szq/MEAL', 'meal', model='meal_b0')",
    ):
        assert hub.check(call, "C") is ApiVerdict.RIGHT, call
    assert hub.check("torch.hub.load('pytorch/vision', 'resnet19')", "C").hallucinated


def test_an_api_without_arguments_matches_by_its_name() -> None:
    hub = database(apis=[("Model.default()", "B"), *APIS])
    assert hub.check("m = Model.default()", "B") is ApiVerdict.RIGHT
    assert hub.check("Model.defaults()", "B") is ApiVerdict.UNKNOWN_FUNCTION


def test_unmatchable_entries_are_reported() -> None:
    """A shell command is not a Python call."""
    unusable = database(apis=[("./run.sh --train", "A"), *APIS]).unusable
    assert [(record.where, record.reason) for record in unusable] == [
        ("huggingface[0]", "an API that is not a call"),
    ]


def question(
    category: Category, *wanted: tuple[str, dict[str, list[Any]]], required: tuple[str, ...] = ()
) -> Question:
    names = {name for name, _ in wanted} | {"other.f"}
    functions = tuple(
        Function.model_validate(
            {"name": name, "parameters": {"properties": TYPES, "required": required}}
        )
        for name in sorted(names)
    )
    calls = tuple(WantedCall(name, arguments) for name, arguments in wanted)
    return Question("q", category, (Message(role="user", content="?"),), functions, calls)


@pytest.mark.parametrize(("possible", "arguments", "fault"), BFCL)
def test_each_call_is_judged_as_in_the_table(
    possible: dict[str, list[Any]], arguments: dict[str, Any], fault: bfcl.Fault | None
) -> None:
    """BFCL's rules for types, values and optional arguments."""
    bfcl_question = question("simple_python", ("f", possible))
    assert bfcl.check(bfcl_question, [ToolCall("f", arguments)]).fault == fault


def test_a_required_argument_must_be_present_regardless_of_the_possible_values() -> None:
    bfcl_question = question("simple_python", ("f", {"n": [1, ""]}), required=("n",))
    assert bfcl.check(bfcl_question, [ToolCall("f", {})]).fault == "missing argument"


def test_functions_are_matched_by_name_and_dots_can_be_underscores() -> None:
    """Some endpoints allow no dots in names."""
    bfcl_question = question("multiple", ("a.f", {"n": [1]}))
    call = ToolCall("a_f", {"n": 1})
    assert bfcl.check(bfcl_question, [ToolCall("a.f", {"n": 1})]).right
    assert bfcl.check(bfcl_question, [ToolCall("other.f", {"n": 1})]).fault == "wrong function"
    assert bfcl.check(bfcl_question, [call]).fault == "wrong function"
    assert bfcl.check(bfcl_question, [call], dots_as_underscores=True).right


def test_an_unnamed_argument_is_a_fault() -> None:
    """The published decoder drops it and judges the call without it."""
    bfcl_question = question("simple_python", ("f", {"n": [1, ""]}))
    assert bfcl.check(bfcl_question, tool_calls("f(1)")).fault == "positional argument"


def test_parallel_calls_can_come_in_any_order_but_each_only_once() -> None:
    bfcl_question = question("parallel", ("f", {"n": [1]}), ("f", {"n": [2]}), ("f", {"n": [2]}))
    first_call, two = ToolCall("f", {"n": 1}), ToolCall("f", {"n": 2})
    assert bfcl.check(bfcl_question, [two, first_call, two]).right
    assert bfcl.check(bfcl_question, [first_call, first_call, two]).fault == "no matching call"
    assert bfcl.check(bfcl_question, [first_call, two]).fault == "wrong number of calls"
    assert bfcl.check(bfcl_question, None).fault == "no calls"


def test_a_matching_is_found_even_if_the_first_fit_would_block_it() -> None:
    """The call without `n` fits both; only one of the two takes the other call."""
    bfcl_question = question("parallel_multiple", ("f", {"n": [1, ""]}), ("f", {"n": [2, ""]}))
    assert bfcl.check(bfcl_question, [ToolCall("f", {}), ToolCall("f", {"n": 1})]).right
    assert not bfcl.check(bfcl_question, [ToolCall("f", {"n": 3}), ToolCall("f", {"n": 1})]).right


def test_calling_nothing_is_right_if_no_function_fits() -> None:
    """Prose, nothing, an empty list; any call is wrong."""
    bfcl_question = question("irrelevance")
    assert all(bfcl.check(bfcl_question, tool_calls(text)).right for text in ("I can't.", "", "[]"))
    assert (
        bfcl.check(bfcl_question, tool_calls("other.f(n=1)")).fault == "a call where none is wanted"
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_gets_a_verdict(text: str) -> None:
    """Deep, long, endless, odd: nothing raises."""
    bfcl_question = question("simple_python", ("f", {"n": [1]}))
    assert not bfcl.check(bfcl_question, tool_calls(text)).right
    assert database().check(text, "Features") is not ApiVerdict.RIGHT
    assert isinstance(rouge_l(text, text), float)
    assert argument_f1(text, '{"a": 1}') == 0.0


@given(st.text(max_size=200))
def test_the_call_parsers_never_raise_on_any_text(text: str) -> None:
    tool_calls(text)
    calls(text)
