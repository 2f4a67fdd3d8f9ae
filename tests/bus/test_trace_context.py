"""W3C trace contexts: the valid ones, and those of a run, a step and a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.bus import TraceContext, span_id_of, step_name, trace_id_of, traceparent_of

RUN = "01a0c450-6c78-762c-82ca-3decceec41a1"
BROUGHT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def digits(count: int) -> st.SearchStrategy[str]:
    """Digits that are not all 0."""
    return st.integers(1, 16**count - 1).map(lambda number: f"{number:0{count}x}")


@given(digits(32), digits(16), st.booleans())
def test_a_trace_context_survives_a_round_trip(trace: str, span: str, sampled: bool) -> None:
    context = TraceContext(trace, span, sampled)
    assert TraceContext.parse(str(context)) == context


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-xyz",
        BROUGHT.upper(),
        BROUGHT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        BROUGHT.replace("00f067aa0ba902b7", "0" * 16),
        "ff" + BROUGHT[2:],
        BROUGHT + "-more",
        BROUGHT + "\n",
        "01" + BROUGHT[2:] + "-" + "x" * 10_000,
    ],
)
def test_a_nonstandard_trace_context_is_rejected(header: str) -> None:
    assert TraceContext.parse(header) is None
    assert trace_id_of(RUN, header) == RUN.replace("-", "")


def test_a_later_version_may_have_more_fields() -> None:
    context = TraceContext.parse("01" + BROUGHT[2:] + "-more")
    assert context == TraceContext.parse(BROUGHT)


def test_each_part_of_a_run_has_its_own_span_in_the_client_s_trace() -> None:
    names = [RUN, step_name(RUN, 0, 1), step_name(RUN, 1, 0), f"{step_name(RUN, 1, 0)}/0"]
    contexts = [TraceContext.parse(traceparent_of(RUN, name, BROUGHT)) for name in names]
    assert [context and context.trace_id for context in contexts] == [BROUGHT.split("-")[1]] * 4
    assert [context and context.span_id for context in contexts] == list(map(span_id_of, names))
    assert len(set(contexts)) == len(names)


def test_outgoing_requests_keep_the_client_s_sampling_decision() -> None:
    assert traceparent_of(RUN, RUN, BROUGHT)[-3:] == "-01"
    assert traceparent_of(RUN, RUN, BROUGHT[:-1] + "0")[-3:] == "-00"
    assert traceparent_of(RUN, RUN)[-3:] == "-01"
    assert traceparent_of("no run", "no run") == ""
