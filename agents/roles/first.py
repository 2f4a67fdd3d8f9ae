"""The small model answers first: its answer is final if the ladder accepts it."""

from __future__ import annotations

from dataclasses import replace

from pydantic import JsonValue

from loopline.agents.cascade_options import CascadeOptions
from loopline.agents.held_back import held_back
from loopline.agents.prompts import Prompt, prompt_in, prompt_set_of
from loopline.agents.protocols import Host
from loopline.agents.records import Call, Candidate, Decision, JsonObject
from loopline.agents.roles.conversation import FinalText
from loopline.agents.roles.escalation import Escalation, total_prices
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.solo import question_conversation
from loopline.agents.roles.subtask import ABOUT_THE_PROBLEM
from loopline.agents.router.rungs import AgreementRung, LogprobRung, ScoreRung
from loopline.agents.verification import LADDER, Evidence, Rung, check_rungs

_REASON_CHARS = 1_000


class First:
    """Decides `answer` {answer, verification, prices}, `escalate` {reason, verification, prices} or
    `failed`. `prices`: the cost of each rung in micro-dollars; that of the answer itself is under
    `answer`. `samples`: how many of the step's last calls are further answers.

    With the option `escalate="step"`, each completion climbs the ladder, and the big model rewrites
    doubtful ones. The answer then only has to pass the free rungs."""

    name = "first"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (prompt_in("general", "solo"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        run, prompts = context.run, prompt_set_of(context.run)
        options = CascadeOptions.model_validate(run.options)
        drafting = held_back(host)  # drafts: the big model may replace them
        of_steps = options.step_escalation()
        escalation = None if of_steps is None else Escalation(of_steps, run, host, "solo")
        messages, conversation, result_of = question_conversation(
            self.name, context, drafting, escalation
        )
        ending = await conversation.run()
        result = result_of(conversation, ending)
        decision = result.decision
        if decision.kind == "failed" and decision.data.get("failure") not in ABOUT_THE_PROBLEM:
            return result
        if decision.kind != "answer" or not isinstance(ending, FinalText):
            reason = str(decision.data.get("reason", ""))[:_REASON_CHARS]
            return replace(result, decision=Decision(kind="escalate", data={"reason": reason}))
        agreement = options.agreement_rung(run, messages)
        score = None
        if options.router is not None and escalation is None:
            score = ScoreRung(options.router, agreement)
        rungs: list[Rung] = [*LADDER]
        if options.min_logprob is not None and escalation is None:
            rungs.append(LogprobRung(options.min_logprob))
        rungs += [rung for rung in (agreement, score) if rung is not None]
        evidence = Evidence(
            run.task.prompt,
            options.expected_type,
            tuple(conversation.counting),
            boxed=prompts == "mathematics",
            cut_off=ending.cut_off,
        )
        verification = await check_rungs(evidence, drafting, rungs)
        samples = agreement.calls if agreement is not None else ()
        prices: dict[str, JsonValue] = {"answer": _price(conversation.calls)}
        if escalation is not None:
            prices = total_prices(result.observation)
        prices = {verdict.rung: 0 for verdict in verification.verdicts} | prices
        if samples:
            prices[AgreementRung.name] = _price(samples)
        data: JsonObject = {
            **decision.data,
            "verification": verification.as_json(),
            "prices": prices,
            "samples": len(samples),
        }
        kind = "answer" if verification.passed else "escalate"
        if not verification.passed:
            data["reason"] = verification.reason[:_REASON_CHARS]
        return _with_evidence(result, Decision(kind=kind, data=data), samples, score)


def _price(calls: list[Call] | tuple[Call, ...]) -> int:
    return sum(call.cost_micro_dollars for call in calls)


def _with_evidence(
    result: StepResult, decision: Decision, samples: tuple[Call, ...], score: ScoreRung | None
) -> StepResult:
    """The step with its samples after the answer's calls, and the scoring request under the last of
    them, so that the step can be replayed."""
    (candidate,) = result.candidates
    turns = result.observation["turns"]
    assert isinstance(turns, list)
    turns = [*turns, *([] for _ in samples)]
    if score is not None and score.entry is not None:
        last = turns[-1]
        assert isinstance(last, list)
        turns[-1] = [*last, score.entry]
    action: JsonObject = {**candidate.action, "kind": decision.kind}
    calls = (*candidate.calls, *samples)
    return replace(
        result,
        candidates=(Candidate(calls=calls, action=action),),
        decision=decision,
        observation={**result.observation, "turns": turns},
    )
