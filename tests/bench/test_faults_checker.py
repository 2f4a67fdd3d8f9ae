"""The checker finds its targets: violations planted in faultless evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from loopline.agents.records import Step
from loopline.bench.proofs.faults.checker import check, surrounding_events
from loopline.bench.proofs.faults.evidence import Event, Evidence, Followed, Letter
from loopline.bench.proofs.faults.settings import DEFAULT
from tests.bench.attacks import attack


@pytest.fixture(scope="module")
def good_day() -> Evidence:
    """Evidence of undisturbed real workers, with leases that a busy machine can keep."""
    return attack(runs=6, seed=3, rate=50, weights={}, times=DEFAULT).evidence


@pytest.fixture
def evidence(good_day: Evidence) -> Evidence:
    """A copy to spoil."""
    return good_day.model_copy(deep=True)


def rules(evidence: Evidence) -> set[str]:
    return {violation.rule for violation in check(evidence)}


def of_kind(evidence: Evidence, kind: str) -> list[Event]:
    return [event for event in evidence.history if event.kind == kind]


def longest(evidence: Evidence) -> str:
    """The run with the most steps."""
    return max(evidence.runs, key=lambda run_id: len(evidence.runs[run_id].journal))


def commits_of(evidence: Evidence, run_id: str) -> list[Event]:
    return [event for event in of_kind(evidence, "commit") if event.run_id == run_id]


def change(text: str, spoil: Callable[[dict[str, Any]], None]) -> str:
    record = json.loads(text)
    spoil(record)
    return json.dumps(record)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_faultless_evidence_has_no_violation(good_day: Evidence) -> None:
    assert [str(violation) for violation in check(good_day)] == []
    assert len(good_day.accepted) == 6
    assert len(commits_of(good_day, longest(good_day))) >= 3


def test_evidence_survives_being_written_to_a_file(good_day: Evidence) -> None:
    assert Evidence.model_validate_json(good_day.model_dump_json()) == good_day


def test_a_step_committed_twice_is_found(evidence: Evidence) -> None:
    commit = of_kind(evidence, "commit")[0]
    at = evidence.history.index(commit)
    evidence.history.insert(at + 1, commit.model_copy(deep=True))
    violations = [v for v in check(evidence) if v.rule == "committed once"]
    assert any("was committed 2 times" in violation.message for violation in violations)
    assert "owned" in rules(evidence)


def test_a_journal_with_a_doubled_step_is_found(evidence: Evidence) -> None:
    record = evidence.runs[longest(evidence)]
    record.journal.append(record.journal[-1])
    assert {"committed once", "in order"} <= rules(evidence)


def test_a_step_missing_from_the_journal_is_found(evidence: Evidence) -> None:
    record = evidence.runs[longest(evidence)]
    del record.journal[1]
    assert {"committed once", "in order", "ledger", "stored once"} <= rules(evidence)


def test_a_lost_end_is_found(evidence: Evidence) -> None:
    end = of_kind(evidence, "end")[0]
    evidence.history.remove(end)
    [violation] = [v for v in check(evidence) if v.rule == "ended once"]
    assert (violation.subject, violation.message) == (end.run_id, "ended 0 times")


def test_a_run_that_ends_twice_is_found(evidence: Evidence) -> None:
    evidence.history.append(of_kind(evidence, "end")[0].model_copy(deep=True))
    assert "ended 2 times" in {violation.message for violation in check(evidence)}


def test_a_run_that_ended_without_an_answer_is_found(evidence: Evidence) -> None:
    end = of_kind(evidence, "end")[0]
    end.fields["outcome"] = "error"
    evidence.runs[end.run_id].outcome = "error"
    assert any(v.message.startswith("ended as error") for v in check(evidence))


def test_an_accepted_run_that_vanished_is_found(evidence: Evidence) -> None:
    run_id = evidence.accepted[0]
    del evidence.runs[run_id]
    evidence.history = [event for event in evidence.history if event.run_id != run_id]
    violations = {(v.rule, v.subject) for v in check(evidence)}
    assert {("admitted once", run_id), ("ended once", run_id)} <= violations


def test_a_run_admitted_twice_is_found(evidence: Evidence) -> None:
    evidence.history.insert(1, of_kind(evidence, "admit")[0].model_copy(deep=True))
    assert "admitted once" in rules(evidence)


def test_a_commit_by_an_owner_that_lost_its_delivery_is_found(evidence: Evidence) -> None:
    commit = of_kind(evidence, "commit")[0]
    _, _, entry = commit.fields["token"].rsplit("/", 2)
    claim = Event(
        id=commit.id,
        fields={
            "event": "claim", "stream": commit.fields["stream"], "entry": entry,
            "consumer": "another", "count": "2",
        },
    )  # fmt: skip
    evidence.history.insert(evidence.history.index(commit), claim)
    [violation] = [v for v in check(evidence) if v.rule == "owned"]
    assert "its owner was another at delivery 2" in violation.message
    # The printed history shows the claim and the commit.
    excerpt = surrounding_events(evidence, violation)
    assert claim in excerpt
    assert commit in excerpt


def test_a_commit_by_a_later_unclaimed_delivery_is_found(evidence: Evidence) -> None:
    commit = of_kind(evidence, "commit")[0]
    consumer, _, entry = commit.fields["token"].rsplit("/", 2)
    commit.fields["token"] = f"{consumer}/7/{entry}"
    assert "owned" in rules(evidence)


def test_a_takeover_and_the_new_owner_s_commit_are_not_a_violation(evidence: Evidence) -> None:
    commit = of_kind(evidence, "commit")[0]
    _, _, entry = commit.fields["token"].rsplit("/", 2)
    token = f"another/2/{entry}"
    claim = Event(
        id=commit.id,
        fields={
            "event": "claim", "stream": commit.fields["stream"], "entry": entry,
            "consumer": "another", "count": "2",
        },
    )  # fmt: skip
    evidence.history.insert(evidence.history.index(commit), claim)
    commit.fields["token"] = token
    evidence.runs[commit.run_id].guards[commit.fields["guard"]] = token
    assert check(evidence) == []


def test_a_claim_of_a_delivery_that_was_settled_by_its_commit_is_found(evidence: Evidence) -> None:
    commit = of_kind(evidence, "commit")[0]
    _, _, entry = commit.fields["token"].rsplit("/", 2)
    evidence.history.append(
        Event(
            id="9-0",
            fields={
                "event": "claim", "stream": commit.fields["stream"], "entry": entry,
                "consumer": "another", "count": "2",
            },
        )
    )  # fmt: skip
    assert any("was claimed after its commit" in v.message for v in check(evidence))


def test_steps_out_of_order_are_found(evidence: Evidence) -> None:
    """History and journal agree with each other; only the workflow would decide otherwise."""
    run_id = longest(evidence)
    record = evidence.runs[run_id]
    record.journal[0], record.journal[1] = record.journal[1], record.journal[0]
    first, second = commits_of(evidence, run_id)[:2]
    for name in ("guard", "token", "stream"):
        first.fields[name], second.fields[name] = second.fields[name], first.fields[name]
    violations = [v for v in check(evidence) if v.rule == "in order"]
    assert any("hands nothing over there" in violation.message for violation in violations)


def test_indices_with_a_gap_are_found(evidence: Evidence) -> None:
    commits_of(evidence, longest(evidence))[-1].fields["index"] = "9"
    assert any("indices are" in violation.message for violation in check(evidence))


def test_a_commit_after_the_end_is_found(evidence: Evidence) -> None:
    commit = commits_of(evidence, longest(evidence))[-1]
    evidence.history.remove(commit)
    evidence.history.append(commit)
    assert any("after the end" in violation.message for violation in check(evidence))


def test_a_decision_that_differs_from_the_roles_is_found(evidence: Evidence) -> None:
    run_id = longest(evidence)
    record = evidence.runs[run_id]

    def spoil(step: dict[str, Any]) -> None:
        step["decision"]["data"]["answer"] = "4711"

    record.journal[-1] = change(record.journal[-1], spoil)
    assert "in order" in rules(evidence)


def test_a_call_missing_from_the_ledger_is_found(evidence: Evidence) -> None:
    run_id = longest(evidence)
    del evidence.runs[run_id].usage[0]
    violations = [v for v in check(evidence) if v.rule == "ledger"]
    assert any("not entered" in violation.message for violation in violations)
    assert any("0 times on the bus, 1 times in the store" in v.message for v in violations)


def test_a_call_billed_twice_is_found(evidence: Evidence) -> None:
    record = evidence.runs[longest(evidence)]
    record.usage.append(record.usage[0])
    assert any("was entered 2 times" in violation.message for violation in check(evidence))


def test_a_discarded_call_is_not_a_violation(evidence: Evidence) -> None:
    """It was paid for and came too late: it is in the ledger, next to the one that was used."""
    run_id = longest(evidence)
    record = evidence.runs[run_id]
    record.usage.append(change(record.usage[0], lambda entry: entry.update(discarded=True)))
    call_id = json.loads(record.usage[0])["call_id"]
    evidence.stored_calls.append(f"{run_id} {call_id} discarded")
    evidence.billed[call_id] += 1
    assert check(evidence) == []


def test_a_worker_that_died_without_an_attack_is_found(evidence: Evidence) -> None:
    evidence.died.append("slm2.1, code 1: RuntimeError: the handler is closed")
    (violation,) = check(evidence)
    assert violation.rule == "nobody died"


def test_a_wrong_answer_is_found(evidence: Evidence) -> None:
    run_id = longest(evidence)
    evidence.expected[run_id] += "1"
    assert rules(evidence) == {"answers right"}


def test_a_call_that_the_endpoint_billed_but_the_ledger_lacks_is_found(
    evidence: Evidence,
) -> None:
    entries = [json.loads(line) for record in evidence.runs.values() for line in record.usage]
    times = Counter(entry["call_id"] for entry in entries)
    call_id = next(call for call in evidence.billed if times[call] == 1)
    evidence.billed[call_id] += 1
    assert rules(evidence) == {"endpoint agrees"}
    # An entry with unknown usage counts as an entry.
    run_id = call_id.partition("/")[0]
    record = evidence.runs[run_id]
    most = {"why": "its worker died", "prompt": 9, "completion": 9, "micro_dollars": 9}
    lost = {"usage": None, "cost_micro_dollars": None, "unknown": most, "discarded": True}
    line = next(line for line in record.usage if json.loads(line)["call_id"] == call_id)
    record.usage.append(change(line, lambda entry: entry.update(lost, sent_as="w/1/1-0/1")))
    evidence.stored_calls.append(f"{run_id} {call_id} unknown")
    assert check(evidence) == []


def test_usage_that_the_endpoint_never_billed_is_found(evidence: Evidence) -> None:
    del evidence.billed[next(iter(evidence.billed))]
    assert rules(evidence) == {"endpoint agrees"}


def test_a_gap_and_a_repeat_in_a_follower_s_stream_are_found(evidence: Evidence) -> None:
    run_id = longest(evidence)
    texts = {
        call.id: call.text
        for line in evidence.runs[run_id].journal
        for call in Step.model_validate_json(line).calls
    }
    evidence.followed = [Followed(run_id=run_id, texts=dict(texts))]
    assert check(evidence) == []
    call_id = max(texts, key=lambda call: len(texts[call]))
    evidence.followed[0].texts[call_id] = texts[call_id][:3] + texts[call_id][4:]
    assert rules(evidence) == {"streams whole"}
    evidence.followed[0].texts[call_id] = texts[call_id][:3] + texts[call_id]
    assert rules(evidence) == {"streams whole"}


def test_inconsistent_token_counts_are_found(evidence: Evidence) -> None:
    evidence.runs[longest(evidence)].tokens += 1
    assert any("the run was charged" in violation.message for violation in check(evidence))


def test_a_trajectory_stored_twice_or_not_at_all_is_found(evidence: Evidence) -> None:
    evidence.stored.append(evidence.stored[0])
    del evidence.stored[1]
    violations = {v.message for v in check(evidence) if v.rule == "stored once"}
    assert violations == {"is stored 2 times", "is stored 0 times"}


def test_a_stored_trajectory_that_differs_from_the_journal_is_found(evidence: Evidence) -> None:
    stored = evidence.stored[0]
    stored.trajectory = change(stored.trajectory, lambda record: record["steps"].pop())
    assert "stored once" in rules(evidence)


def test_a_key_without_an_expiry_is_found(evidence: Evidence) -> None:
    evidence.keys_without_ttl.append("{sw:0}:log:1")
    [violation] = check(evidence)
    assert str(violation) == "[bounded life] {sw:0}:log:1 has no expiry"


def test_a_leftover_message_retry_and_run_are_found(evidence: Evidence) -> None:
    key = next(iter(evidence.streams))
    evidence.streams[key].length = 1
    evidence.delayed["{sw:0}:delayed:tools"] = 1
    evidence.active.append(evidence.accepted[0])
    assert len([v for v in check(evidence) if v.rule == "nothing left"]) == 3


def test_a_consumer_without_a_living_worker_is_found(evidence: Evidence) -> None:
    evidence.live_consumers_before_drain.append("planner0.99-abcdef01")
    [violation] = check(evidence)
    assert "belongs to no living worker" in violation.message


def test_a_consumer_left_after_the_drain_is_found(evidence: Evidence) -> None:
    next(iter(evidence.streams.values())).consumers.append("planner0.1-abcdef01")
    assert rules(evidence) == {"nothing left"}


def test_a_dead_letter_is_found(evidence: Evidence) -> None:
    evidence.dead_letters.append(Letter(run_id="1", stream="tools", reason="failed 100 times"))
    [violation] = check(evidence)
    assert violation.message == "dead letter on tools: failed 100 times"
