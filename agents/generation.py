"""Options that a run's caller may set for its completions, and how they apply to the agents of a
team.

`Run.generation` is the only place for them in all workflows, and only `generation_of` applies them:
hosts call it for every completion.

* Sampling options (`temperature`, `top_p`, `top_k`, the penalties) and the inputs of the chat
  template (`template_options`) apply to every completion of every agent.
* The length of the answer and its stop texts (`max_tokens`, `stop`, `verbosity`), how much to think
  about it (`reasoning_effort`), and the literal `seed`, apply to the completions of agents whose
  text may be the answer: a plan, or a task that is handed over, must not be truncated where the
  caller's answer would be, and a small model that helps often can't think. The other agents' seeds
  come from `Run.seed`, which is set to the caller's seed.
* The options under `agents` (the same ones, and the length and stop texts of completions) apply
  only to the named agent's completions, and override all others.
* Options for a single completion of a chat API (`n`, the choice of tools, the texts of tokens)
  apply only in the workflow `chat`.

The caller's options override those of an agent's author, which override the pool's defaults. An
option that a workflow can't apply is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection

from loopline.agents.errors import UnsupportedGeneration
from loopline.agents.escalation_options import agent_of
from loopline.agents.payloads import ACTING_ROLES
from loopline.agents.records import NOTHING_CHOSEN, GenerationOptions, JsonObject, Run
from loopline.agents.workflows import Answering, Honouring, Workflow, capability, workflows

_SAMPLING = frozenset({"temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty"})
EVERY_AGENT = _SAMPLING | {"agents", "template_options"}
_ANSWER = frozenset({"max_tokens", "stop", "reasoning_effort", "verbosity"})
ANSWERING_AGENTS = _ANSWER | {"seed"}
OF_ONE_AGENT = _SAMPLING | _ANSWER | {"template_options"}


def is_nothing(options: GenerationOptions) -> bool:
    """Whether all options are left to the pool. Most requests have this very object."""
    return options is NOTHING_CHOSEN or options == NOTHING_CHOSEN


def require_honoured(workflow: str, options: JsonObject, generation: GenerationOptions) -> None:
    """Raise `UnsupportedGeneration` for the first option that the workflow can't apply, and
    `UnknownName`."""
    definition = workflows.get(workflow)
    honoured = _honoured(definition, options)
    for field in generation.chosen:
        if field not in honoured:
            raise UnsupportedGeneration(
                field,
                f"the workflow {workflow!r} cannot honour {field!r}; it takes: "
                f"{', '.join(sorted(honoured)) or 'none of these options'}",
            )
    for agent, options_of_agent in generation.agents.items():
        for field in options_of_agent.chosen:
            if field not in OF_ONE_AGENT:
                raise UnsupportedGeneration(
                    f"agents.{agent}.{field}",
                    f"{field!r} can't be set for one agent ({agent}); these can: "
                    f"{', '.join(sorted(OF_ONE_AGENT))}",
                )


def generation_of(
    run: Run, agent: str, of_agent: GenerationOptions | None
) -> GenerationOptions | None:
    """Generation options of an agent's completion: the run caller's options override the agent's
    own."""
    if run.generation is None or is_nothing(run.generation):
        return of_agent
    definition = workflows.get(run.workflow)
    # An agent's options also apply to the model that takes its doubtful steps.
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
    # The seed is the run's, even if no answering agent is known.
    return EVERY_AGENT | (ANSWERING_AGENTS if _answering(definition, options) else {"seed"})


def _answering(definition: Workflow, options: JsonObject) -> Collection[str]:
    if answering := capability(definition, Answering):
        return answering.answering(options)
    alone = len(definition.roles) == 1 and definition.roles[0] not in ACTING_ROLES
    return definition.roles if alone else ()
