"""The rungs of a cascade that need more than the text: log-probabilities, further samples, and the
learned score. The ledger contains their cost, because they are calls of the step like any other."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from loopline.agents.errors import MalformedModelOutput
from loopline.agents.protocols import Host
from loopline.agents.records import Call, GenerationOptions, JsonObject, Message, Run
from loopline.agents.router.features import clip, comparable_answer
from loopline.agents.tools.route_answer import ROUTE_ANSWER
from loopline.agents.verification import Evidence, Verdict

_REASON_CHARS = 500


def logprobs_of(calls: Sequence[Call]) -> tuple[float, ...]:
    """Log-probabilities of the answer's tokens: the model's own if the engine knows them, else
    those of the sampling distribution; empty if the endpoint returned none."""
    last = calls[-1]
    return last.raw_logprobs or last.logprobs


def agreement_seed(run: Run) -> int:
    """Seed of the samples, different from all other seeds of the run."""
    return zlib.crc32(f"{run.seed}/agreement".encode())


def logprob_verdict(calls: Sequence[Call], least: float) -> Verdict:
    """Verdict on whether the mean log-probability of the answer's tokens is at least `least`."""
    values = logprobs_of(calls)
    if not values:
        reason = "the engine gave no log-probabilities, so nothing vouches for it"
        return Verdict(rung=LogprobRung.name, passed=False, reason=reason)
    mean = sum(values) / len(values)
    return Verdict(
        rung=LogprobRung.name, passed=mean >= least, reason=f"{mean:.3f}, at least {least}"
    )


def agreement_verdict(
    samples: Sequence[Call], agrees: Callable[[Call], bool], least: float
) -> Verdict:
    """Verdict on whether at least this share of the samples agrees."""
    if all(call.sampling.temperature == 0 for call in samples):
        # A caller's own temperature overrides ours.
        reason = "the samples were drawn at temperature 0, so their agreement says nothing"
        return Verdict(rung=AgreementRung.name, passed=False, reason=reason)
    share = sum(map(agrees, samples)) / len(samples)
    return Verdict(
        rung=AgreementRung.name,
        passed=share >= least,
        reason=f"{share:.0%} of {len(samples)} samples agree, at least {least:.0%}",
    )


async def score_verdict(
    router: str,
    host: Host,
    *,
    question: str,
    text: str,
    calls: Sequence[Call],
    samples: Sequence[Call],
) -> tuple[Verdict, JsonObject]:
    """Whether the trained router accepts the text; and the request with its answer, in the form of
    a step's observation."""
    arguments: JsonObject = {
        "router": router,
        "question": clip(question),
        "text": clip(text),
        "logprobs": [*logprobs_of(calls)],
        "samples": [clip(call.said) for call in samples],
    }
    output = await host.call_tool(ROUTE_ANSWER, arguments)
    reason = (
        f"score {output.get('score')}, right with probability {output.get('probability')}"
        if "accepted" in output
        else f"no score: {output.get('error')}"[:_REASON_CHARS]
    )
    verdict = Verdict(rung=ScoreRung.name, passed=output.get("accepted") is True, reason=reason)
    return verdict, {"tool": ROUTE_ANSWER, "arguments": arguments, "output": output}


class LogprobRung:
    """Checks that the mean log-probability of the answer's tokens is not below a bound."""

    name = "logprob"

    def __init__(self, least: float) -> None:
        self._least = least

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        return logprob_verdict(evidence.calls, self._least)


class AgreementRung:
    """Checks that at least this share of k further answers, drawn in one batch, equals the
    first."""

    name = "agreement"

    def __init__(
        self, run: Run, messages: Sequence[Message], k: int, least: float, temperature: float
    ) -> None:
        self.calls: tuple[Call, ...] = ()
        """Samples, once they have been drawn."""
        self._messages = tuple(messages)
        self._least = least
        # Not `SamplingParams`: the pool still decides how long a text may be.
        self._options = GenerationOptions(temperature=temperature, n=k, seed=agreement_seed(run))

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        k = self._options.n
        calls = await host.complete(self._messages, options=self._options)
        if len(calls) != k:
            raise MalformedModelOutput(f"{k} completions were asked for, {len(calls)} came back")
        self.calls = calls
        answer = comparable_answer(evidence.text)
        return agreement_verdict(
            calls, lambda call: comparable_answer(call.said) == answer, self._least
        )


class ScoreRung:
    """Checks that the trained router accepts the answer."""

    name = "score"

    def __init__(self, router: str, agreement: AgreementRung | None) -> None:
        self.entry: JsonObject | None = None
        """The request and its answer, in the form of a step's observation."""
        self._router = router
        self._agreement = agreement

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        samples = self._agreement.calls if self._agreement is not None else ()
        verdict, self.entry = await score_verdict(
            self._router,
            host,
            question=evidence.problem,
            text=evidence.text,
            calls=evidence.calls,
            samples=samples,
        )
        return verdict
