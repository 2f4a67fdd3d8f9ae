"""`team`: agents that the run itself describes, in sequence, in parallel or in a loop
(`loopline.agents.team_parts`)."""

from __future__ import annotations

from collections.abc import Mapping

from loopline.agents.escalation_options import big_agent
from loopline.agents.payloads import AGENT, PartPayload
from loopline.agents.records import JsonObject, Outcome, Run, Step, ToolSpec
from loopline.agents.team_journal import latest_step, next_turn, payload_of, result_of
from loopline.agents.team_parts import (
    AgentPart,
    BranchDone,
    ParallelPart,
    Part,
    Place,
    agents_of_team,
    answering_agents,
    following,
    gathering_lane,
    inner_parts,
    lane,
    opening,
    part_at,
    team_of,
    with_agents,
)
from loopline.agents.tools.offered import whole_tools
from loopline.agents.workflows.routing import (
    Arrive,
    Continue,
    Fanout,
    Finish,
    Handoff,
    Options,
    Routing,
    finish_given_up_by_role,
    no_route_error,
    parse_options,
)

PARALLEL = "parallel"
"""Agent of the steps that start the parts of a `parallel` and gather their answers. No model is
called."""


class TeamOptions(Options):
    """Options of `team`."""

    team: JsonObject
    """The outermost part."""


class TeamWorkflow:
    """One step for each agent's turn, and two for each `parallel`."""

    name = "team"
    roles = (AGENT,)
    default_policies: Mapping[str, str] = {}

    def check_options(self, options: JsonObject) -> JsonObject:
        parse_options(self.name, TeamOptions, options)
        return {"team": team_of(options).model_dump(mode="json")}

    def first(self, run: Run) -> tuple[Handoff, ...]:
        team = team_of(run.options)
        return (_handoff(team, opening(team, Place()), turn=0),)

    def route(self, run: Run, journal: tuple[Step, ...], step: Step) -> Routing:
        team = team_of(run.options)
        payload = payload_of(step)
        place = Place(payload.path, payload.rounds)
        match payload.act, step.decision.kind:
            case "scatter", "scatter":
                return _fan_out(team, place, step.turn)
            case "answer", "answer":
                turn = step.turn + 1
            case "gather", "gather":
                turn = next_turn((*journal, step), place.path)
            case "answer", "give_up":
                return finish_given_up_by_role(step)
            case _:
                raise no_route_error(self.name, step)
        successor = following(team, place, str(step.decision.data.get("answer", "")))
        match successor:
            case None:
                return Finish(Outcome.ANSWERED, answer=result_of(team, (), (*journal, step)))
            case BranchDone(path):
                scatter = latest_step(journal, path, "scatter")
                return Arrive(_join(path, scatter.turn))
            case Place():
                return Continue((_handoff(team, successor, turn),))

    def agents_in(self, options: JsonObject) -> Mapping[str, str]:
        agents = agents_of_team(team_of(options))
        big_agents = {
            big_agent(name): agent.escalation.model
            for name, agent in agents.items()
            if agent.escalation is not None
        }
        return {name: agent.model for name, agent in agents.items()} | big_agents

    def answering(self, options: JsonObject) -> tuple[str, ...]:
        return answering_agents(team_of(options))

    def tools_in(self, options: JsonObject) -> tuple[str | ToolSpec, ...]:
        agents = agents_of_team(team_of(options)).values()
        return tuple(tool for agent in agents for tool in agent.tools)

    def with_tools(self, options: JsonObject, specs: Mapping[str, ToolSpec]) -> JsonObject:
        team = team_of(options)
        agents = {
            name: agent.model_copy(update={"tools": whole_tools(agent.tools, specs)})
            for name, agent in agents_of_team(team).items()
        }
        return {"team": with_agents(team, agents).model_dump(mode="json")}


class NamedTeam(TeamWorkflow):
    """A team with its own name. Its runs belong to `team`, and contain the whole definition:
    workers that take their steps need not know the name."""

    def __init__(self, name: str, team: Part) -> None:
        self.name = name
        self._team = team.model_dump(mode="json")

    def check_options(self, options: JsonObject) -> JsonObject:
        """Accept no options. Raises `InvalidOptions` if there are any."""
        parse_options(self.name, Options, options)
        return super().check_options({"team": self._team})


def _handoff(team: Part, place: Place, turn: int) -> Handoff:
    """Hand-over to the agent at `place`, or to the step that starts the parts of the `parallel`
    there."""
    part = part_at(team, place.path)
    is_agent = isinstance(part, AgentPart)
    payload = PartPayload(
        agent=part.name if is_agent else PARALLEL,
        act="answer" if is_agent else "scatter",
        path=place.path,
        rounds=place.rounds,
    )
    return Handoff(AGENT, turn, payload, branch=lane(team, place.path))


def _fan_out(team: Part, place: Place, turn: int) -> Fanout:
    parallel = part_at(team, place.path)
    assert isinstance(parallel, ParallelPart)
    starts = [
        opening(team, Place((*place.path, position), place.rounds))
        for position in range(len(inner_parts(parallel)))
    ]
    gather = PartPayload(agent=PARALLEL, act="gather", path=place.path, rounds=place.rounds)
    return Fanout(
        tuple(_handoff(team, start, turn + 1) for start in starts),
        join=_join(place.path, turn),
        continuation=Handoff(AGENT, turn + 1, gather, branch=gathering_lane(team, place.path)),
    )


def _join(path: tuple[int, ...], turn: int) -> str:
    """Name of a join; the turn distinguishes the rounds of a loop."""
    return f"{'.'.join(map(str, path))}@{turn}"
