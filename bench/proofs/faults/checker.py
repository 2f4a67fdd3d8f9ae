"""The proof: rules that every attacked deployment must satisfy, whatever happened to it.

Each rule is a function from evidence to violations. None asks the bus: the history that the server
wrote, the remaining records and the store must agree with each other.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from loopline.agents.records import Call, Outcome, Step, Trajectory
from loopline.agents.replay import replay
from loopline.agents.usage import UsageEntry
from loopline.agents.workflows import add_rewards
from loopline.bench.proofs.faults import outside
from loopline.bench.proofs.faults.evidence import Event, Evidence, RunRecord, call_fate
from loopline.bench.proofs.outcome import Violation

_OWN_ENDS = (Outcome.ANSWERED, Outcome.SOLVED, Outcome.FAILED)
AROUND = 40
"""Most events that are printed with a violation."""


Rule = Callable[[Evidence], Iterator[Violation]]


def check(evidence: Evidence) -> list[Violation]:
    """Return every violation of every rule."""
    return [violation for rule in RULES for violation in rule(evidence)]


def surrounding_events(evidence: Evidence, violation: Violation) -> list[Event]:
    """Return the history of the run that a violation concerns: its events, and the claims of the
    deliveries that it committed. Without a run: the last events of all runs."""
    if not violation.subject:
        return evidence.history[-AROUND:]
    entries = {
        event.fields["token"].rsplit("/", 1)[1]
        for event in evidence.history
        if event.run_id == violation.subject and "token" in event.fields
    }
    return [
        event
        for event in evidence.history
        if event.run_id == violation.subject or event.fields.get("entry") in entries
    ][:AROUND]


def admitted_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that each run whose admission the client saw was admitted exactly once, and still
    exists."""
    admits = Counter(event.run_id for event in evidence.history if event.kind == "admit")
    for run_id in evidence.accepted:
        if admits[run_id] != 1:
            yield Violation("admitted once", f"admitted {admits[run_id]} times", run_id)
        if run_id not in evidence.runs:
            yield Violation("admitted once", "its record is gone", run_id)


def ended_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that every admitted run ended exactly once, as its record states, and with a regular
    end: with enough attempts, no fault of a process is a reason to give up a question."""
    ends: dict[str, list[Event]] = defaultdict(list)
    for event in evidence.history:
        if event.kind == "end":
            ends[event.run_id].append(event)
    run_ids = set(evidence.accepted) | {
        event.run_id for event in evidence.history if event.kind == "admit"
    }
    for run_id in sorted(run_ids):
        if len(ends[run_id]) != 1:
            yield Violation("ended once", f"ended {len(ends[run_id])} times", run_id)
            continue
        record = evidence.runs.get(run_id)
        outcome = ends[run_id][0].fields["outcome"]
        if record is not None and (record.state, record.outcome) != ("ended", outcome):
            yield Violation(
                "ended once",
                f"the history says {outcome}, its record {record.state} {record.outcome}",
                run_id,
            )
        if outcome not in _OWN_ENDS:
            reason = record.reason if record is not None else "?"
            yield Violation("ended once", f"ended as {outcome}: {reason}", run_id)
    for run_id in sorted(set(ends) - run_ids):
        yield Violation("ended once", "ended, but was never admitted", run_id)


def committed_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that commits match the journal: same steps, same order, indices without a gap, each
    place once, and none after the end."""
    commits: dict[str, list[Event]] = defaultdict(list)
    over: set[str] = set()
    for event in evidence.history:
        if event.kind == "end":
            over.add(event.run_id)
            steps = int(event.fields["steps"])
            if steps != len(commits[event.run_id]):
                yield Violation(
                    "committed once",
                    f"ended with {steps} steps after {len(commits[event.run_id])} commits",
                    event.run_id,
                )
        elif event.kind == "commit":
            if event.run_id in over:
                yield Violation(
                    "committed once",
                    f"step {event.fields['guard']} was committed after the end",
                    event.run_id,
                )
            commits[event.run_id].append(event)
    for run_id, record in evidence.runs.items():
        yield from _journal_matches(run_id, record, commits[run_id])


def _journal_matches(run_id: str, record: RunRecord, commits: list[Event]) -> Iterator[Violation]:
    rule = "committed once"
    indices = [int(event.fields["index"]) for event in commits]
    if indices != list(range(1, len(commits) + 1)):
        yield Violation(rule, f"the journal's indices are {indices}", run_id)
    guards = [event.fields["guard"] for event in commits]
    for guard, times in Counter(guards).items():
        if times > 1:
            yield Violation(rule, f"step {guard} was committed {times} times", run_id)
    steps = [Step.model_validate_json(step) for step in record.journal]
    written = [f"{step.turn}.{step.branch}" for step in steps]
    if written != guards:
        yield Violation(rule, f"the journal holds {written}, the history {guards}", run_id)
    tokens = {event.fields["guard"]: event.fields["token"] for event in commits}
    if tokens != record.guards:
        yield Violation(rule, "the run's guards differ from the history's tokens", run_id)
    for step in steps:
        if step.run_id != run_id:
            yield Violation(rule, f"the journal holds a step of run {step.run_id}", run_id)


def routed_in_order(evidence: Evidence) -> Iterator[Violation]:
    """Check that each step answers a hand-over of an earlier step, and that the workflow, replayed
    from the journal, makes the same decisions and reaches the same end."""

    async def replay_all() -> list[Violation]:
        violations: list[Violation] = []
        for run_id, record in evidence.runs.items():
            if record.state != "ended":
                continue
            result = await replay(_trajectory(record))
            violations += [
                Violation("in order", divergence, run_id) for divergence in result.divergences
            ]
        return violations

    yield from asyncio.run(replay_all())


def _trajectory(record: RunRecord) -> Trajectory:
    steps = tuple(Step.model_validate_json(step) for step in record.journal)
    return Trajectory.from_texts(
        record.run, steps, record.outcome, record.answer, record.reason, record.ended
    )


def committed_by_owner(evidence: Evidence) -> Iterator[Violation]:
    """Check that no stale owner committed: the token of each commit is that of the delivery's last
    claim before it, or belongs to a first delivery without a claim. The count of a delivery's
    claims rises, and no claim follows the commit that settled it."""
    owner: dict[tuple[str, str], tuple[str, int]] = {}
    settled: set[tuple[str, str]] = set()
    for event in evidence.history:
        if event.kind == "claim":
            place = event.fields["stream"], event.fields["entry"]
            count = int(event.fields["count"])
            before = owner.get(place, ("", 1))[1]
            if place in settled:
                yield Violation("owned", f"{place[1]} was claimed after its commit: {event}")
            if count <= before:
                yield Violation("owned", f"delivery count {count} after {before}: {event}")
            owner[place] = event.fields["consumer"], count
        elif event.kind == "commit":
            consumer, count, entry = event.fields["token"].rsplit("/", 2)
            place = event.fields["stream"], entry
            current = owner.get(place)
            mine = current == (consumer, int(count)) if current else count == "1"
            if not mine:
                whose = f"{current[0]} at delivery {current[1]}" if current else "nobody yet"
                yield Violation(
                    "owned",
                    f"step {event.fields['guard']} was committed by {consumer} at delivery "
                    f"{count}, but its owner was {whose}",
                    event.run_id,
                )
            if place in settled:
                yield Violation("owned", f"delivery {entry} was committed twice", event.run_id)
            settled.add(place)


def ledger_adds_up(evidence: Evidence) -> Iterator[Violation]:
    """Check the ledger of each run: its used entries are the calls of the journal, each once and
    with the exact tokens; the run's counters are their sums; the store has every entry once, as
    used, discarded or unknown."""
    rule = "ledger"
    expected: Counter[str] = Counter()
    for run_id, record in evidence.runs.items():
        entries = [UsageEntry.model_validate_json(entry) for entry in record.usage]
        for entry in entries:
            expected[f"{run_id} {entry.call_id} {call_fate(entry)}"] += 1
        used = Counter(entry.call_id for entry in entries if not entry.discarded)
        calls: dict[str, Call] = {}
        for step in record.journal:
            for call in Step.model_validate_json(step).calls:
                if call.id in calls:
                    yield Violation(rule, f"call {call.id} is in the journal twice", run_id)
                calls[call.id] = call
        for call_id, times in used.items():
            if times > 1:
                yield Violation(rule, f"call {call_id} was entered {times} times", run_id)
        if used.keys() != calls.keys():
            missing, extra = calls.keys() - used.keys(), used.keys() - calls.keys()
            yield Violation(
                rule, f"not entered: {sorted(missing)}; not expected: {sorted(extra)}", run_id
            )
            continue
        for entry in entries:
            call = calls.get(entry.call_id)
            if entry.discarded or call is None:
                continue
            if (entry.usage, entry.cost_micro_dollars) != (call.usage, call.cost_micro_dollars):
                yield Violation(rule, f"call {call.id}: ledger and journal differ", run_id)
        tokens = sum(call.usage.prompt + call.usage.completion for call in calls.values())
        cost = sum(call.cost_micro_dollars for call in calls.values())
        if (tokens, cost) != (record.tokens, record.micro_dollars):
            yield Violation(
                rule,
                f"the run was charged {record.tokens} tokens and {record.micro_dollars} "
                f"micro-dollars, its calls are {tokens} and {cost}",
                run_id,
            )
    stored = Counter(evidence.stored_calls)
    for row in sorted((stored - expected) + (expected - stored)):
        yield Violation(
            rule, f"call {row}: {expected[row]} times on the bus, {stored[row]} times in the store"
        )


def stored_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that the store has every ended run once, with the content of its journal."""
    rule = "stored once"
    rows = Counter(stored.run_id for stored in evidence.stored)
    for run_id, record in evidence.runs.items():
        if rows[run_id] != (1 if record.state == "ended" else 0):
            yield Violation(rule, f"is stored {rows[run_id]} times", run_id)
    for stored in evidence.stored:
        record = evidence.runs.get(stored.run_id)
        if record is None:
            yield Violation(rule, "stored, but not on the bus", stored.run_id)
            continue
        trajectory = Trajectory.model_validate_json(stored.trajectory)
        if trajectory != add_rewards(_trajectory(record)):
            yield Violation(rule, "the stored trajectory is not the journal", stored.run_id)


def nothing_left(evidence: Evidence) -> Iterator[Violation]:
    """Check that an idle deployment contains no message, retry, run or dead letter, and no name of
    a dead consumer."""
    rule = "nothing left"
    for key, state in evidence.streams.items():
        if state.length or state.pending:
            yield Violation(
                rule, f"{key} holds {state.length} messages, {state.pending} of them pending"
            )
        if state.consumers:
            yield Violation(rule, f"{key} has consumers after the drain: {state.consumers}")
    for key, waiting in evidence.delayed.items():
        if waiting:
            yield Violation(rule, f"{waiting} retries wait in {key}")
    for run_id in evidence.active:
        yield Violation(rule, "still counts as in flight", run_id)
    for letter in evidence.dead_letters:
        yield Violation(rule, f"dead letter on {letter.stream}: {letter.reason}", letter.run_id)
    alive = tuple(f"{worker}-" for worker in evidence.live_workers)
    for consumer in evidence.live_consumers_before_drain:
        if not consumer.startswith(alive):
            yield Violation(rule, f"consumer {consumer} belongs to no living worker")


def keys_expire(evidence: Evidence) -> Iterator[Violation]:
    """Check that no key lacks an expiry, except those that live until a person removes them."""
    for key in evidence.keys_without_ttl:
        yield Violation("bounded life", f"{key} has no expiry")


RULES: tuple[Rule, ...] = (
    admitted_once,
    ended_once,
    committed_once,
    routed_in_order,
    committed_by_owner,
    ledger_adds_up,
    stored_once,
    nothing_left,
    keys_expire,
    *outside.RULES,
)
