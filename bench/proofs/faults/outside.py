"""Rules about an attacked deployment as others saw it: the watcher of its processes, callers,
followers, and the paid endpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from loopline.agents.records import Outcome, Step
from loopline.agents.usage import UsageEntry, deduplicate_usage
from loopline.bench.proofs.faults.evidence import Evidence
from loopline.bench.proofs.outcome import Violation


def nobody_died(evidence: Evidence) -> Iterator[Violation]:
    """Check that no worker died because of a fault elsewhere: in a connection, a server, a peer."""
    for message in evidence.died:
        yield Violation("nobody died", f"a worker exited by itself: {message}")


def answers_right(evidence: Evidence) -> Iterator[Violation]:
    """Check that every question with a known answer got that answer."""
    for run_id, expected in evidence.expected.items():
        record = evidence.runs.get(run_id)
        if record is not None and record.outcome == Outcome.ANSWERED and record.answer != expected:
            yield Violation("answers right", f"{record.answer!r} instead of {expected!r}", run_id)


def streams_whole(evidence: Evidence) -> Iterator[Violation]:
    """Check that each follower of a run, which returned after each lost connection, has read each
    call's text without a gap or a repeat."""
    rule = "streams whole"
    for followed in evidence.followed:
        for fault in followed.faults:
            yield Violation(rule, fault, followed.run_id)
        record = evidence.runs.get(followed.run_id)
        if record is None:
            continue
        for step in record.journal:
            for call in Step.model_validate_json(step).calls:
                read = followed.texts.get(call.id, "")
                if "#" not in call.id and read != call.text:
                    yield Violation(
                        rule, f"call {call.id}: read {read!r}, not {call.text!r}", followed.run_id
                    )


def endpoint_agrees(evidence: Evidence) -> Iterator[Violation]:
    """Check that every call that the endpoint billed has an entry, with its usage or as unknown,
    and that no entry has a usage that the endpoint did not bill."""
    entry_counts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for record in evidence.runs.values():
        entries = [UsageEntry.model_validate_json(line) for line in record.usage]
        for entry in deduplicate_usage(entries):
            if entry.sent_as and "#" not in entry.call_id:
                (entry_counts if entry.unknown is None else unknown)[entry.call_id] += 1
    for call_id in sorted({*entry_counts, *evidence.billed}):
        billed, entered = evidence.billed.get(call_id, 0), entry_counts[call_id]
        run_id = call_id.partition("/")[0]
        if billed > entered + unknown[call_id]:
            yield Violation(
                "endpoint agrees",
                f"call {call_id}: billed {billed} times; the ledger has {entered} entries and "
                f"{unknown[call_id]} unknown ones",
                run_id,
            )
        if entered > billed:
            yield Violation(
                "endpoint agrees", f"call {call_id}: {entered} entries, billed {billed}", run_id
            )


RULES = (nobody_died, answers_right, streams_whole, endpoint_agrees)
