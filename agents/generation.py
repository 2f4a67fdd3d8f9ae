"""Options that a run's caller may set for its completions, and how they apply to the agents of a
team.

`Run.generation` is the one place for it, whatever the workflow, and `generation_of` the one piece
of code that applies it: hosts call it for every completion.

* How to sample (`temperature`, `top_p`, the penalties) and what the chat template is told
  (`template_options`) hold for every completion of every agent.
* How long the answer is and where it stops (`max_tokens`, `stop`), and the literal `seed`, hold for
  the completions of those agents whose text may be the answer: a plan, or a task that is handed
  over, must not be cut where the caller's answer would be. The other agents' seeds come from
  `Run.seed`, which the caller's seed becomes.
* What `agents` says of one agent (the same, and how long its completions are, where they stop)
  holds for its completions alone, and stands over the rest.
* What belongs to one completion of a chat API (`n`, the choice of tools, the texts of tokens) is
  honoured by the workflow `chat` alone.

What the caller set stands over what an agent's author set, and that over the pool's defaults. What
a workflow can't honour is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection

from loopline.agents.errors import UnsupportedGeneration
from loopline.agents.escalation_options import agent_of
from loopline.agents.payloads import ACTING_ROLES
from loopline.agents.records import GenerationOptions, JsonObject, Run
from loopline.agents.workflows import Answering, Honouring, Workflow, capability, workflows

_SAMPLING = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
EVERY_AGENT = _SAMPLING | {"agents", "template_options"}
ANSWERING_AGENTS = frozenset({"max_tokens", "stop", "seed"})
OF_ONE_AGENT = _SAMPLING | {"max_tokens", "stop", "template_options"}


def require_honoured(workflow: str, options: JsonObject, generation: GenerationOptions) -> None:
    """Raise `UnsupportedGeneration` for the first option that the workflow can't honour, and
    `UnknownName`."""
    definition = workflows.get(workflow)
    honoured = _honoured(definition, options)
    for field in generation.chosen:
        if field not in honoured:
            raise UnsupportedGeneration(
                field,
                f"the workflow {workflow!r} cannot honour {field!r}; it takes: "
                f"{', '.join(sorted(honoured)) or 'nothing of the kind'}",
            )
    for agent, options_of_agent in generation.agents.items():
        for field in options_of_agent.chosen:
            if field not in OF_ONE_AGENT:
                raise UnsupportedGeneration(
                    f"agents.{agent}.{field}",
                    f"{field!r} can't be set for one agent ({agent}); what can: "
                    f"{', '.join(sorted(OF_ONE_AGENT))}",
                )


def generation_of(
    run: Run, agent: str, of_agent: GenerationOptions | None
) -> GenerationOptions | None:
    """Generation options of an agent's completion: what the run's caller set overrides what the
    agent asks for."""
    if run.generation is None:
        return of_agent
    definition = workflows.get(run.workflow)
    # What holds for an agent holds for the model that takes its doubtful steps.
    agent = agent_of(agent)
    fields = {*_honoured(definition, run.options)}
    if agent not in _answering(definition, run.options):
        fields -= ANSWERING_AGENTS
    values = {
        field: getattr(run.generation, field)
        for field in run.generation.chosen
        if field in fields and field != "agents"
    }
    if "agents" in fields and agent in run.generation.agents:
        for_agent = run.generation.agents[agent]
        switches = {**values.get("template_options", {}), **for_agent.template_options}
        values |= {field: getattr(for_agent, field) for field in for_agent.chosen}
        if switches:
            values["template_options"] = switches
    return (of_agent or GenerationOptions()).model_copy(update=values)


def _honoured(definition: Workflow, options: JsonObject) -> Collection[str]:
    if honouring := capability(definition, Honouring):
        return honouring.honoured
    # The seed is the run's, also where nobody is known to answer.
    return EVERY_AGENT | (ANSWERING_AGENTS if _answering(definition, options) else {"seed"})


def _answering(definition: Workflow, options: JsonObject) -> Collection[str]:
    if answering := capability(definition, Answering):
        return answering.answering(options)
    alone = len(definition.roles) == 1 and definition.roles[0] not in ACTING_ROLES
    return definition.roles if alone else ()
