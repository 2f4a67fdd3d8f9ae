"""Invariants of every soak. Each is a function from observations to violations; none asks the
engine how a request went."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loopline.bench.proofs.outcome import Violation
from loopline.bench.proofs.soak import memory
from loopline.bench.proofs.soak.workload import SCHEMA, Planned
from loopline.workers.engines.protocol import AnswerEvent, Completion, Delta, EngineTotals

GRACE = 10.0
"""Seconds after its cancellation or its deadline within which a request must end, even on a busy
machine."""

SAME = 1e-3
"""Largest difference of log-probabilities of the same ids between batches of other shapes
(float32). Two tokens with a smaller difference of logits are almost tied."""

AT_REST = 8
"""Objects of a kind that an idle thread may still have in its variables."""

Logprob = Callable[[Sequence[int]], Awaitable[float]]
"""Returns the log-probability of the last id, given the ids before it."""


@dataclass
class Seen:
    """One request, as its sender saw it."""

    planned: Planned
    max_context: int
    version: int | None = None
    """Version of its adapter when it was sent; None if the adapter was not served."""
    events: list[AnswerEvent] = field(default_factory=list[AnswerEvent])
    ending: str = ""
    """Ending: `done` (its iterator ended), `closed`, `dropped`, `unanswered`, or an error's
    kind."""
    message: str = ""
    """Message of the error."""
    late: float = 0.0
    """Seconds from the planned early end to its actual end."""

    @property
    def completions(self) -> list[Completion]:
        return [event for event in self.events if isinstance(event, Completion)]

    @property
    def whole(self) -> bool:
        """Whether the engine answered it completely, even if nobody was still listening."""
        return len(self.completions) >= self.planned.sampling.n

    @property
    def tokens(self) -> int:
        """Number of its tokens that were certainly generated."""
        counts = Counter[int]()
        for event in self.events:
            if isinstance(event, Delta):
                counts[event.index] += len(event.ids)
            else:
                counts[event.index] = max(counts[event.index], len(event.output_ids))
        return counts.total()


def check(record: Seen) -> list[Violation]:
    """Return every violation of the invariants of one request."""
    return [
        Violation(rule, message, record.planned.id)
        for rule, invariant in INVARIANTS.items()
        for message in invariant(record)
    ]


def allowed_endings(record: Seen) -> set[str]:
    """Endings that the plan of a request allows. Its sender may also end a request that must
    fail."""
    planned = record.planned
    early = {
        name
        for name, planned_so in (
            ("deadline", planned.deadline),
            ("dropped", planned.drop_after),
            ("cancelled", planned.cancel_after),
            ("closed", planned.close_after),
        )
        if planned_so is not None
    }
    if planned.deadline is not None and planned.deadline <= 0:
        return {"deadline"} | (early & {"dropped"})
    if planned.adapter is not None and record.version is None:
        # Refused before it could be awaited, cancelled or closed.
        return {"unknown_adapter"} | (early & {"dropped", "deadline"})
    if planned.schema not in (None, SCHEMA):
        return {"bad_request"} | (early - {"closed"})
    if planned.size == "too long":
        return {"context_overflow"} | (early - {"closed"})
    return {"done"} | early


def ended_as_planned(record: Seen) -> Iterator[str]:
    """Check that every request ends, with its completions or with one error of a kind that its plan
    allows."""
    allowed = allowed_endings(record)
    if record.ending not in allowed:
        endings = ", ".join(sorted(allowed))
        yield f"ended as {record.ending} {record.message}; its plan allows {endings}"


def ended_in_time(record: Seen) -> Iterator[str]:
    if record.late > GRACE:
        yield f"ended {record.late:.1f} s after it was cancelled or out of time"


def answered_once(record: Seen) -> Iterator[str]:
    """Check that there is at most one completion for each index, one for every index if the
    iterator ended by itself, and no event after the completion of the same index."""
    indices = Counter(completion.index for completion in record.completions)
    expected = set(range(record.planned.sampling.n))
    for index, times in sorted(indices.items()):
        if times > 1 or index not in expected:
            yield f"completion {index} of {len(expected)} came {times} times"
    if record.ending == "done" and indices.keys() != expected:
        yield f"ended by itself with completions {sorted(indices)} of {len(expected)}"
    over: set[int] = set()
    for event in record.events:
        if event.index in over:
            yield f"an event of completion {event.index} came after its end"
        if isinstance(event, Completion):
            over.add(event.index)


def right_version(record: Seen) -> Iterator[str]:
    """Check that the answer came from the adapter version that served when the request was sent."""
    expected = record.planned.adapter, record.version or 0
    for completion in record.completions:
        if (completion.adapter, completion.adapter_version) != expected:
            yield (
                f"was sent to {expected[0]} version {expected[1]}, answered by "
                f"{completion.adapter} "
                f"version {completion.adapter_version}"
            )


def stream_is_the_answer(record: Seen) -> Iterator[str]:
    """Check that the joined pieces of a stream equal the completion, without a gap or a repeat, and
    that none are sent without being requested."""
    for completion in record.completions:
        pieces = [
            event
            for event in record.events
            if isinstance(event, Delta) and event.index == completion.index
        ]
        if not record.planned.stream:
            if pieces:
                yield f"{len(pieces)} pieces of completion {completion.index} came unrequested"
        elif (
            "".join(piece.text for piece in pieces) != completion.text
            or sum((piece.ids for piece in pieces), ()) != completion.output_ids
        ):
            yield f"the pieces of completion {completion.index} are not its text and ids"


def counted_right(record: Seen) -> Iterator[str]:
    """Check that the usage counts the returned ids, and that they exceed neither the requested
    number nor the context."""
    limit = record.planned.sampling.max_tokens
    for completion in record.completions:
        prompt = len(completion.prompt_ids) if completion.index == 0 else 0
        if (completion.usage.prompt, completion.usage.completion) != (
            prompt,
            len(completion.output_ids),
        ):
            yield (
                f"usage of completion {completion.index} is {completion.usage}, which does not "
                "match its ids"
            )
        if len(completion.logprobs) != len(completion.output_ids):
            yield (
                f"{len(completion.logprobs)} log-probabilities of {len(completion.output_ids)} ids"
            )
        most = min(limit, record.max_context - len(completion.prompt_ids))
        cut = completion.finish_reason == "length"
        if len(completion.output_ids) > most or (cut and len(completion.output_ids) != most):
            yield (
                f"{len(completion.output_ids)} ids ({completion.finish_reason}) where {most} "
                "were the limit"
            )


def follows_the_schema(record: Seen) -> Iterator[str]:
    """Check that an answer that ends normally under a schema is an instance of it."""
    if record.planned.schema is None:
        return
    for completion in record.completions:
        if completion.finish_reason == "stop" and not _is_instance(completion.text):
            yield f"{completion.text!r} is not an instance of the schema"


def _is_instance(text: str) -> bool:
    try:
        document = json.loads(text)
    except ValueError:
        return False
    if not isinstance(document, dict) or set(document) != {"answer"}:
        return False
    return isinstance(document["answer"], int) and 0 <= document["answer"] <= 999


INVARIANTS: dict[str, Callable[[Seen], Iterator[str]]] = {
    "ended as planned": ended_as_planned,
    "ended in time": ended_in_time,
    "answered once": answered_once,
    "right version": right_version,
    "whole stream": stream_is_the_answer,
    "counted right": counted_right,
    "follows the schema": follows_the_schema,
}


@dataclass
class Sums:
    """Sums over all requests."""

    endings: Counter[str] = field(default_factory=Counter[str])
    answers: int = 0
    """Completed answers, whether or not anyone was listening."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    discarded_tokens: int = 0
    """Tokens seen in requests that were not answered completely."""

    def add(self, record: Seen) -> None:
        self.endings[record.ending] += 1
        if record.whole:
            self.answers += 1
            self.prompt_tokens += sum(completion.usage.prompt for completion in record.completions)
            self.completion_tokens += sum(
                completion.usage.completion for completion in record.completions
            )
        else:
            self.discarded_tokens += record.tokens


def every_request_ended(sums: Sums, sent: int) -> Iterator[Violation]:
    if sums.endings.total() != sent:
        yield Violation("answered once", f"{sent} were sent, {sums.endings.total()} ended")


def totals_add_up(sums: Sums, totals: EngineTotals) -> Iterator[Violation]:
    """Check that the engine's own count is the sum of the usages that it reported, and that it
    discarded at least the tokens seen in unfinished requests."""
    for name, request_total, engines in (
        ("requests answered", sums.answers, totals.calls),
        ("prompt tokens", sums.prompt_tokens, totals.prompt_tokens),
        ("completion tokens", sums.completion_tokens, totals.completion_tokens),
    ):
        if request_total != engines:
            yield Violation(
                "totals add up", f"{name}: {request_total} seen, the engine counts {engines}"
            )
    if sums.discarded_tokens > totals.abandoned_tokens:
        yield Violation(
            "totals add up",
            f"abandoned tokens: {sums.discarded_tokens} seen, the engine counts "
            f"{totals.abandoned_tokens}",
        )


def nothing_left(
    in_use: Mapping[str, int], tasks: Sequence[str], objects: Mapping[str, int]
) -> Iterator[Violation]:
    """Check that an idle engine has nothing in progress, no task in the event loop, and no objects
    of requests or of replaced adapters. `objects`: the number beyond those in use."""
    for name, count in in_use.items():
        if count:
            yield Violation("nothing left", f"{count} {name} at rest")
    for task in tasks:
        yield Violation("nothing left", f"task {task} at rest")
    for name, count in objects.items():
        if count > AT_REST:
            yield Violation("nothing left", f"{count} objects of the kind {name} at rest")


def memory_is_flat(samples: Sequence[int], requests: int) -> Iterator[Violation]:
    """Check that resident memory grows by no more than `memory.GROWTH` over the second half. A
    short run has no verdict."""
    growth_rate = memory.growth(samples)
    if (
        requests >= memory.FEWEST_REQUESTS
        and growth_rate is not None
        and growth_rate > memory.GROWTH
    ):
        third, last = memory.quarters(samples)
        yield Violation(
            "memory is flat",
            f"{third / 1e6:.0f} MB in the third quarter, {last / 1e6:.0f} MB in the last "
            f"({growth_rate:+.1%}, at most {memory.GROWTH:.0%})",
        )


@dataclass
class Comparison:
    """Comparison of an answer with the same answer from an idle engine."""

    tied: bool = False
    """Whether they diverge where two tokens were almost tied."""
    difference: float = 0.0
    """Greatest difference of the log-probabilities of their common ids."""
    problem: str = ""
    """Description of the problem."""


async def compare(answer: Completion, quiet: Completion, logprob: Logprob) -> Comparison:
    """Check that greedy answers to the same request have the same ids with the same
    log-probabilities, up to a position where two tokens were nearly tied. `logprob` asks the idle
    engine."""
    if answer.prompt_ids != quiet.prompt_ids:
        return Comparison(problem="other prompt ids than in quiet")
    pairs = list(zip(answer.output_ids, quiet.output_ids, strict=False))
    common = next((at for at, (first, second) in enumerate(pairs) if first != second), len(pairs))
    difference = max(
        (
            abs(first - second)
            for first, second in zip(answer.logprobs[:common], quiet.logprobs[:common], strict=True)
        ),
        default=0.0,
    )
    if difference > SAME:
        return Comparison(
            difference=difference,
            problem=f"log-probabilities of the same ids differ by {difference:.2g} from quiet ones",
        )
    if answer.output_ids == quiet.output_ids:
        return Comparison(difference=difference)
    if common == len(pairs):
        return Comparison(problem=f"{len(answer.output_ids)} ids, {len(quiet.output_ids)} in quiet")
    before = [*answer.prompt_ids, *answer.output_ids[:common]]
    answer_logprob = await logprob([*before, answer.output_ids[common]])
    quiet_logprob = await logprob([*before, quiet.output_ids[common]])
    if abs(answer_logprob - quiet_logprob) <= SAME:
        return Comparison(tied=True, difference=difference)
    return Comparison(
        difference=difference,
        problem=f"id {common} is {answer.output_ids[common]}, in quiet {quiet.output_ids[common]}, "
        f"{quiet_logprob - answer_logprob:+.2g} in log-probability",
    )
