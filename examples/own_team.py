"""Two roles and a workflow of your own: a proposer answers, and a reviewer has the last word.

docs/build/roles.md shows how to install and use them.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.payloads import QuestionPayload
from loopline.agents.prompts import Prompt
from loopline.agents.protocols import Host
from loopline.agents.records import Candidate, Decision, JsonObject, Message, Outcome, Run, Step
from loopline.agents.roles.protocol import StepContext, StepResult
from loopline.agents.workflows.routing import Continue, Finish, Handoff, Options, Routing


class Writer:
    """Asks its model once. The reviewer also sees the text of the proposer."""

    version = 1
    prompts: tuple[Prompt, ...] = ()

    def __init__(self, name: str, instruction: str) -> None:
        self.name = name
        self._instruction = instruction

    async def step(self, context: StepContext, host: Host) -> StepResult:
        texts = [str(step.decision.data["text"]) for step in context.journal]
        question = "\n\n".join([context.run.task.prompt, *texts])
        messages = [Message(role="system", content=self._instruction)]
        (call,) = await host.complete([*messages, Message(role="user", content=question)])
        return StepResult(
            (Candidate(calls=(call,)),), Decision(kind="text", data={"text": call.said})
        )


class Reviewed:
    """A proposer answers, and a reviewer has the last word."""

    name = "reviewed"
    roles = ("proposer", "reviewer")
    default_policies: Mapping[str, str] = {"proposer": "slm", "reviewer": "llm"}

    def check_options(self, options: JsonObject) -> JsonObject:
        return Options.model_validate(options).model_dump()

    def first(self, run: Run) -> tuple[Handoff, ...]:
        return (Handoff("proposer", turn=0, payload=QuestionPayload()),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        if step.agent == "proposer":
            return Continue((Handoff("reviewer", turn=1, payload=QuestionPayload()),))
        return Finish(Outcome.ANSWERED, answer=str(step.decision.data["text"]))


proposer = Writer("proposer", "Solve the problem.")
reviewer = Writer("reviewer", "Check the solution below the problem, and write the right answer.")
reviewed = Reviewed()
