"""Answers the user from the observations."""

from __future__ import annotations

from loopline.agents.prompts import Prompt, load_prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Decision, JsonObject
from loopline.agents.roles.conversation import truncation_reason
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.roles.umi.history import team_history
from loopline.agents.roles.umi.output import read_answer
from loopline.agents.roles.umi.settings import options_of
from loopline.agents.roles.umi.step import completion, refuse_other_payloads, step_result
from loopline.agents.roles.umi.transcript import summarizer_input


class UmiSummarizer:
    """Decides `answer` {answer}, `give_up` {reason} or `failed`. An answer that was cut off does
    not count: what it lacks may be what was asked for. Where the run's caller limited its length,
    it counts, with `cut_off`.
    """

    name = "umi_summarizer"
    version = 1

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (load_prompt("umi_summarizer"),)

    async def step(self, context: StepContext, host: Host) -> StepResult:
        refuse_other_payloads(context, self.name)
        options = options_of(context.run)
        turns = team_history(context.run, context.journal, options.observation_chars)
        call = await completion(context, host, self.prompts[0], summarizer_input(turns))
        reason = truncation_reason(call)
        answer = read_answer(call.said)
        generation = context.run.generation
        wanted_short = generation is not None and generation.max_tokens is not None
        if answer and (reason is None or wanted_short):
            cut: JsonObject = {} if reason is None else {"cut_off": reason}
            return step_result(call, Decision(kind="answer", data={"answer": answer, **cut}))
        data = {"reason": reason or "the summarizer wrote no answer"}
        return step_result(call, Decision(kind="give_up", data={**data}))
