"""The rungs of a cascade that need more than the text: log-probabilities, further samples, and the
learned score. What each costs is in the ledger: they are calls of the step like any other."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from loopline.agents.errors import MalformedModelOutput
from loopline.agents.protocols import Host
from loopline.agents.records import Call, GenerationOptions, JsonObject, Message, Run
from loopline.agents.router.evidence import clip
from loopline.agents.router.features import comparable_answer
from loopline.agents.tools.route_answer import ROUTE_ANSWER
from loopline.agents.verification import Evidence, Verdict


def logprobs_of(calls: Sequence[Call]) -> tuple[float, ...]:
    """Of the tokens of the answer: the model's own where the engine knows them, else those that it
    was sampled by; empty where the endpoint gave none."""
    last = calls[-1]
    return last.raw_logprobs or last.logprobs


class LogprobRung:
    """The mean log-probability of the answer's tokens is not below a bound."""

    name = "logprob"

    def __init__(self, least: float) -> None:
        self._least = least

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        values = logprobs_of(evidence.calls)
        if not values:
            reason = "the engine gave no log-probabilities, so nothing vouches for the answer"
            return Verdict(rung=self.name, passed=False, reason=reason)
        mean = sum(values) / len(values)
        return Verdict(
            rung=self.name, passed=mean >= self._least, reason=f"{mean:.3f}, at least {self._least}"
        )


class AgreementRung:
    """At least this many of k further answers, drawn in one batch, equal the first."""

    name = "agreement"

    def __init__(
        self, run: Run, messages: Sequence[Message], k: int, least: float, temperature: float
    ) -> None:
        self.calls: tuple[Call, ...] = ()
        """The samples, once they were drawn."""
        self._messages = tuple(messages)
        self._least = least
        # Not `SamplingParams`: how long a text may be stays the pool's.
        self._options = GenerationOptions(
            temperature=temperature, n=k, seed=zlib.crc32(f"{run.seed}/agreement".encode())
        )

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        k = self._options.n
        calls = await host.complete(self._messages, options=self._options)
        if len(calls) != k:
            raise MalformedModelOutput(f"{k} completions were asked for, {len(calls)} came back")
        self.calls = calls
        if all(call.sampling.temperature == 0 for call in calls):
            # A caller's own temperature goes before ours.
            reason = "the samples were drawn at temperature 0, so their agreement says nothing"
            return Verdict(rung=self.name, passed=False, reason=reason)
        answer = comparable_answer(evidence.text)
        share = sum(comparable_answer(call.said) == answer for call in calls) / k
        return Verdict(
            rung=self.name,
            passed=share >= self._least,
            reason=f"{share:.0%} of {k} samples say the same, at least {self._least:.0%}",
        )


class ScoreRung:
    """The router that was trained accepts the answer."""

    name = "score"

    def __init__(self, router: str, agreement: AgreementRung | None) -> None:
        self.entry: JsonObject | None = None
        """The request and its answer, as a step's observation holds them."""
        self._router = router
        self._agreement = agreement

    async def check(self, evidence: Evidence, host: Host) -> Verdict:
        samples = self._agreement.calls if self._agreement is not None else ()
        arguments: JsonObject = {
            "router": self._router,
            "question": clip(evidence.problem),
            "text": clip(evidence.text),
            "logprobs": [*logprobs_of(evidence.calls)],
            "samples": [clip(call.said) for call in samples],
        }
        output = await host.call_tool(ROUTE_ANSWER, arguments)
        self.entry = {"tool": ROUTE_ANSWER, "arguments": arguments, "output": output}
        if "accepted" not in output:
            reason = f"no score: {output.get('error')}"[:500]
            return Verdict(rung=self.name, passed=False, reason=reason)
        chance = output.get("probability")
        return Verdict(
            rung=self.name,
            passed=output["accepted"] is True,
            reason=f"score {output.get('score')}, right with probability {chance}",
        )
