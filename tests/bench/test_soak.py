"""`bench soak` on micro models, and its invariants against observations that break them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loopline.agents.records import SamplingParams, Usage
from loopline.bench.proofs.soak import invariants
from loopline.bench.proofs.soak.invariants import AT_REST, GRACE, SAME, Seen, Sums
from loopline.bench.proofs.soak.memory import FEWEST_REQUESTS, growth
from loopline.bench.proofs.soak.weights import SETS, prepare
from loopline.bench.proofs.soak.workload import (
    IMPOSSIBLE,
    SCHEMA,
    Planned,
    Room,
    operations,
    plan_request,
)
from loopline.testing.vllm_double import write_program
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.local.model_files import local_folder
from loopline.workers.engines.protocol import Completion, Delta, EngineTotals
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.managed import PYTHON_VARIABLE
from tests.bench.command_line import bench
from tests.workers.engines.asking import ask

# llguidance's adapter still uses its old name.
pytestmark = pytest.mark.filterwarnings("ignore:llama_token_get_attr is deprecated")

ROOM = Room(max_context=1024, overhead=20, per_word=2)


# The command.


@pytest.mark.parametrize("engine", ["llama_cpp", "torch", "vllm"])
@pytest.mark.slow
def test_an_engine_under_attack_breaks_no_invariant(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "llama_cpp":
        pytest.importorskip("llama_cpp", reason="needs make gguf")
    # The double of a server.
    monkeypatch.setenv(PYTHON_VARIABLE, str(write_program(tmp_path)))
    done = bench("soak", "--engine", engine, "--requests", "150", "--seed", "7", "--json")
    assert done.returncode == 0, done.stdout
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["complete"]
    assert result["violations"] == {}
    facts = result["facts"]
    assert facts["ended"] == 150
    # There was an attack, and there was something to compare.
    # A server is slower, so that the few requests with an impossible schema may end early.
    refused = () if engine == "vllm" else ("bad_request",)
    for kind in ("done", "cancelled", "deadline", "dropped", *refused):
        assert facts["endings"][kind] > 0
    assert facts["versions_loaded"] > 0
    assert facts["compared_in_quiet"] > 10


@pytest.mark.slow
def test_prefixes_shared_across_adapters_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp#26207: the cache of one adapter serves another one."""
    pytest.importorskip("llama_cpp", reason="needs make gguf")
    from loopline.workers.engines.llama_cpp.sequences import Sequences

    by_key = Sequences.longest_prefix

    def naive(self: Sequences, _: Any, ids: Sequence[int]) -> Any:
        sequences = (*self._in_use, *self._kept)  # pyright: ignore[reportPrivateUsage]
        matches = [by_key(self, key, ids) for key in {entry.key for entry in sequences}]
        return max(matches, key=lambda entry: entry[1], default=(None, 0))

    monkeypatch.setattr(Sequences, "longest_prefix", naive)
    process = bench("soak", "--engine", "llama_cpp", "--requests", "60", "--seed", "7", "--json")
    assert process.returncode == 1
    assert json.loads(process.stdout.splitlines()[-1])["violations"].keys() == {"as in quiet"}
    assert "[as in quiet] soak-" in process.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "openai"), "--engine openai: Input should be 'llama_cpp', 'torch' or 'vllm'"),
        (("--engine", "torch", "--model", "/nowhere"), "no folder with a config.json"),
        (("--engine", "torch", "--model", "micro:xl"), "there is no micro model 'micro:xl'"),
    ],
)
def test_an_invalid_engine_or_model_is_one_error(arguments: tuple[str, ...], words: str) -> None:
    process = bench("soak", *arguments)
    assert process.returncode == 2
    assert words in process.stderr


def test_a_model_with_a_small_context_is_refused(tmp_path: Path) -> None:
    model = Path(shutil.copytree(local_folder("micro:slm"), tmp_path / "small"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 128}))
    process = bench("soak", "--engine", "torch", "--model", str(model))
    assert process.returncode == 2
    assert "its context of 128 tokens is too small" in process.stderr


async def test_every_set_of_weights_changes_the_answer(tmp_path: Path) -> None:
    """Otherwise a wrong version would look like the right one."""
    prepared = prepare("torch", "micro:slm", tmp_path)
    engine = build_engine(ModelSettings(engine="torch", model=prepared.model))
    await engine.start()
    for number, folder in enumerate(prepared.adapters):
        await engine.load_adapter(f"set {number}", str(folder), 1)
    names = [None, *(f"set {number}" for number in range(SETS))]
    completions = [await ask(engine, adapter=name, sampling={"max_tokens": 8}) for name in names]
    assert len({completion.output_ids for completion in completions}) == SETS + 1
    await engine.close()


# The plan.


def test_the_plan_follows_from_the_seed() -> None:
    def plan(seed: int) -> list[object]:
        return [
            (plan_request(index, seed, ROOM, 0.5), operations(index, seed, SETS))
            for index in range(200)
        ]

    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_a_plan_has_requests_and_operations_of_every_kind() -> None:
    plan = [plan_request(index, 7, ROOM, 0.5) for index in range(1000)]
    assert {item.size for item in plan} == {"usual", "near the end", "too long"}
    assert {item.sampling.n for item in plan} == {1, 2, 3}
    assert {item.adapter for item in plan} == {None, "red", "green", "blue"}
    for field in ("deadline", "cancel_after", "drop_after", "close_after", "schema"):
        setting_count = sum(getattr(item, field) is not None for item in plan)
        assert 30 < setting_count < 300, field
    operation_counts = Counter(
        item.kind for index in range(1000) for item in operations(index, 7, SETS)
    )
    assert min(operation_counts[kind] for kind in ("load", "unload", "load damaged")) > 2


# The invariants of one request.


def asked(**fields: Any) -> Planned:
    """A greedy request for one completion that ends by itself."""
    sampling = SamplingParams(max_tokens=fields.pop("max_tokens", 3), n=fields.pop("n", 1))
    plain: dict[str, Any] = {"stream": False, "schema": None, "adapter": None}
    return Planned(0, "?", fields.pop("size", "usual"), sampling, **(plain | fields))


def answer(index: int = 0, ids: tuple[int, ...] = (7, 8, 2), **fields: Any) -> Completion:
    plain: dict[str, Any] = {
        "text": "ab",
        "prompt_ids": (1, 2, 3, 4),
        "logprobs": (-0.5,) * len(ids),
        "finish_reason": "stop",
        "usage": Usage(prompt=4 if index == 0 else 0, completion=len(ids), source="engine"),
    }
    return Completion(index=index, output_ids=ids, **(plain | fields))


def seen(plan: Planned, *events: Delta | Completion, ending: str = "done", **fields: Any) -> Seen:
    return Seen(plan, max_context=100, events=list(events), ending=ending, **fields)


def rules(evidence: Seen) -> set[str]:
    return {violation.rule for violation in invariants.check(evidence)}


PIECES = (Delta(text="a", ids=(7,)), Delta(text="b", ids=(8,)), Delta(text="", ids=(2,)))


@pytest.mark.parametrize(
    "evidence",
    [
        seen(asked(), answer()),
        seen(asked(n=2), answer(1), answer()),
        seen(asked(stream=True), *PIECES, answer()),
        seen(asked(adapter="red"), answer(adapter="red", adapter_version=4), version=4),
        seen(asked(adapter="red"), ending="unknown_adapter"),
        seen(asked(size="too long"), ending="context_overflow"),
        seen(asked(schema=IMPOSSIBLE), ending="bad_request"),
        seen(asked(schema=SCHEMA), answer(text='{"answer": 12}')),
        seen(asked(cancel_after=0.1), ending="cancelled", late=0.2),
        seen(asked(cancel_after=0.1), answer()),
        seen(asked(deadline=0.1, n=2), answer(), ending="deadline"),
        seen(asked(deadline=-1.0), ending="deadline"),
        seen(asked(drop_after=0.1), ending="dropped"),
        seen(asked(close_after=1, n=2), answer(1), ending="closed"),
        seen(asked(max_tokens=2), answer(ids=(7, 8), finish_reason="length")),
    ],
)
def test_a_request_that_goes_as_planned_is_not_a_violation(evidence: Seen) -> None:
    assert invariants.check(evidence) == []


@pytest.mark.parametrize(
    "evidence",
    [
        seen(asked(), ending="cancelled"),
        seen(asked(), ending="deadline"),
        seen(asked(), ending="dropped"),
        seen(asked(), answer(), ending="closed"),
        seen(asked(), ending="unanswered"),
        seen(asked(), ending="RuntimeError"),
        seen(asked(), ending="internal"),
        seen(asked(cancel_after=0.1), ending="deadline"),
        seen(asked(deadline=-1.0), answer()),
        seen(asked(size="too long"), answer()),
        seen(asked(schema=IMPOSSIBLE), answer()),
        seen(asked(adapter="red"), answer()),
        seen(asked(adapter="red"), ending="unknown_adapter", version=3),
    ],
)
def test_an_unplanned_ending_is_found(evidence: Seen) -> None:
    assert "ended as planned" in rules(evidence)


def test_a_request_that_continues_after_its_cancellation_is_found() -> None:
    assert rules(seen(asked(cancel_after=0.1), answer(), late=GRACE + 1)) == {"ended in time"}


@pytest.mark.parametrize(
    "evidence",
    [
        seen(asked(), answer(), answer()),
        seen(asked(), answer(), answer(1)),
        seen(asked(n=2), answer()),
        seen(asked()),
        seen(asked(stream=True), *PIECES, answer(), Delta(text="")),
    ],
)
def test_a_missing_or_extra_answer_is_found(evidence: Seen) -> None:
    assert "answered once" in rules(evidence)


@pytest.mark.parametrize(("adapter", "version"), [("red", 3), ("red", 5), ("green", 4), (None, 0)])
def test_a_version_other_than_the_one_at_sending_time_is_found(
    adapter: str | None, version: int
) -> None:
    completion = answer(adapter=adapter, adapter_version=version)
    assert rules(seen(asked(adapter="red"), completion, version=4)) == {"right version"}


@pytest.mark.parametrize(
    "pieces", [PIECES[1:], (PIECES[0], *PIECES), (PIECES[1], PIECES[0], PIECES[2])]
)
def test_a_gap_or_a_repeat_in_a_stream_is_found(pieces: tuple[Delta, ...]) -> None:
    assert rules(seen(asked(stream=True), *pieces, answer())) == {"whole stream"}


def test_an_unrequested_stream_is_found() -> None:
    assert rules(seen(asked(), *PIECES, answer())) == {"whole stream"}


@pytest.mark.parametrize(
    "completion",
    [
        answer(usage=Usage(prompt=5, completion=3, source="engine")),
        answer(usage=Usage(prompt=4, completion=2, source="engine")),
        answer(logprobs=(-0.5,)),
        answer(ids=(7, 8, 9, 2)),
        answer(ids=(7, 8), finish_reason="length"),
        answer(prompt_ids=(1,) * 99, usage=Usage(prompt=99, completion=3, source="engine")),
    ],
)
def test_a_wrong_count_is_found(completion: Completion) -> None:
    assert rules(seen(asked(), completion)) == {"counted right"}


@pytest.mark.parametrize("text", ["{", "12", '{"answer": 1000}', '{"answer": 1, "b": 2}'])
def test_an_end_outside_the_schema_is_found(text: str) -> None:
    assert rules(seen(asked(schema=SCHEMA), answer(text=text))) == {"follows the schema"}


# The invariants of all requests together.


def test_totals_are_checked_against_the_sums() -> None:
    sums = Sums()
    sums.add(seen(asked(n=2), answer(), answer(1)))
    sums.add(seen(asked(close_after=1), answer(), ending="closed"))
    sums.add(seen(asked(stream=True, cancel_after=0.1), *PIECES[:2], ending="cancelled"))
    assert list(invariants.totals_add_up(sums, EngineTotals(2, 8, 9, abandoned_tokens=2))) == []
    for wrong in (
        EngineTotals(3, 8, 9, 2),
        EngineTotals(2, 12, 9, 2),
        EngineTotals(2, 8, 11, 2),
        EngineTotals(2, 8, 9, 1),
    ):
        assert len(list(invariants.totals_add_up(sums, wrong))) == 1
    assert list(invariants.every_request_ended(sums, 3)) == []
    assert [violation.message for violation in invariants.every_request_ended(sums, 4)] == [
        "4 were sent, 3 ended"
    ]


def test_leftovers_at_rest_are_reported() -> None:
    clean = invariants.nothing_left({"rows": 0}, [], {"Job": AT_REST})
    assert list(clean) == []
    violations = invariants.nothing_left(
        {"rows": 0, "lost places": 1}, ["Soak._read()"], {"Job": AT_REST + 1, "Row": 0}
    )
    assert [violation.message for violation in violations] == [
        "1 lost places at rest", "task Soak._read() at rest", "9 objects of the kind Job at rest",
    ]  # fmt: skip


def test_memory_that_grows_in_the_second_half_is_found() -> None:
    settled = [100 + min(place, 50) for place in range(100)]
    leaking = [1000 + 5 * place for place in range(100)]
    spiky = [1500 if place % 7 == 0 else 1000 for place in range(100)]
    assert list(invariants.memory_is_flat(settled, FEWEST_REQUESTS)) == []
    assert list(invariants.memory_is_flat(spiky, FEWEST_REQUESTS)) == []
    (violation,) = invariants.memory_is_flat(leaking, FEWEST_REQUESTS)
    assert violation.rule == "memory is flat"
    assert list(invariants.memory_is_flat(leaking, FEWEST_REQUESTS - 1)) == []
    assert growth([1, 2, 3]) is None


@pytest.mark.parametrize(
    ("completion", "quiet", "words"),
    [
        (answer(), answer(), ""),
        (answer(), answer(logprobs=(-0.5, -0.5 - SAME / 2, -0.5)), ""),
        (answer(), answer(logprobs=(-0.5, -0.5 - SAME * 2, -0.5)), "differ by 0.002"),
        (answer(), answer(prompt_ids=(1, 2)), "other prompt ids"),
        (answer(), answer(ids=(7, 8)), "3 ids, 2 in quiet"),
        (answer(), answer(ids=(7, 5, 2)), "id 1 is 8, in quiet 5, +0.25"),
    ],
)
async def test_an_answer_is_compared_with_the_one_without_load(
    completion: Completion, quiet: Completion, words: str
) -> None:
    async def logprob(ids: Sequence[int]) -> float:
        assert tuple(ids[:-1]) == (*completion.prompt_ids, 7)
        return {8: -1.0, 5: -0.75}[ids[-1]]

    comparison = await invariants.compare(completion, quiet, logprob)
    assert words in comparison.problem
    assert bool(comparison.problem) == bool(words)
    assert not comparison.tied


async def test_ids_can_diverge_at_a_near_tie() -> None:
    async def logprob(ids: Sequence[int]) -> float:
        return {8: -1.0, 5: -1.0 + SAME / 2}[ids[-1]]

    # The rest is another text, and proves nothing.
    other_answer = answer(ids=(7, 5, 9, 9), logprobs=(-0.5, -0.6, -3.0, -4.0))
    comparison = await invariants.compare(answer(), other_answer, logprob)
    assert comparison.tied
    assert comparison.problem == ""
