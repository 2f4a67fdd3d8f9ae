"""`pair`: K candidates of one observation, the best one executed before the next agent observes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from loopline.agents.environments import math_team
from loopline.agents.environments.code import team as code_team
from loopline.agents.environments.environment import Environment
from loopline.agents.environments.game import replay_episode
from loopline.agents.environments.plan_path.generation import instances as plan_path_instances
from loopline.agents.environments.plan_path.instance import (
    PlanPathInstance,
    PlanPathSetting,
    shortest_path,
)
from loopline.agents.environments.plan_path.puzzle import PlanPathPuzzle
from loopline.agents.environments.registry import find
from loopline.agents.environments.sokoban.generation import instances as sokoban_instances
from loopline.agents.environments.sokoban.solver import solve
from loopline.agents.environments.sudoku.generation import instances as sudoku_instances
from loopline.agents.environments.team_episode import PLAN, TOOL, TeamEpisode
from loopline.agents.environments.word_problem_team.generation import (
    instances as word_problem_team_instances,
)
from loopline.agents.errors import (
    EnvironmentFault,
    MalformedModelOutput,
    NoRoute,
    RequestFailed,
)
from loopline.agents.records import (
    Call,
    Decision,
    GenerationOptions,
    JsonObject,
    Message,
    Outcome,
    Run,
    SamplingParams,
    Task,
    ToolSpec,
    Trajectory,
)
from loopline.agents.replay import replay
from loopline.agents.roles.pair.episode import episode_of, executed_action
from loopline.agents.workflow_runner import run_locally
from loopline.agents.workflows import add_rewards as workflows_rewarded
from loopline.agents.workflows import workflows
from loopline.agents.workflows.pair import agreement_rate, rewarded
from tests.agents.conversations import ScriptedHost, a_run, says

GRID = (".....", ".###.", ".....", ".....", ".....")
"""The path from the top left to the bottom right takes 8 moves."""


@dataclass
class ManyHost:
    """Answers a request for n completions with the next n texts."""

    script: Iterable[Sequence[str] | Exception]
    prompts: list[tuple[Message, ...]] = field(default_factory=list[tuple[Message, ...]])
    sampling: list[SamplingParams] = field(default_factory=list[SamplingParams])

    def __post_init__(self) -> None:
        self._replies = iter(self.script)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        sampling: SamplingParams | None = None,
        previous: Call | None = None,
        json_schema: JsonObject | None = None,
        options: GenerationOptions | None = None,
    ) -> tuple[Call, ...]:
        assert sampling is not None
        self.prompts.append(tuple(messages))
        self.sampling.append(sampling)
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return tuple(says(text) for text in reply)

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        raise AssertionError(f"no role of a pair calls a tool of its host: {name}")


def a_task(**setting: object) -> Task:
    path_setting = PlanPathSetting.model_validate({"search": 8, **setting})
    return PlanPathInstance(grid=GRID, start=(0, 0), goal=(4, 4), setting=path_setting).task


def pair_run(task: Task, **options: object) -> Run:
    run = a_run("pair", "puzzle", **options)
    checked = workflows.get("pair").check_options(run.options)
    return run.model_copy(update={"task": task, "options": checked})


def answer(moves: str) -> str:
    return f"#### [{', '.join(moves)}]"


BFS = "#### [bfs(4)]"
TO_THE_GOAL = answer("DDDDRRRR")


async def play(
    run: Run, tool: Iterable[Sequence[str] | Exception], plan: Iterable[Sequence[str] | Exception]
) -> tuple[Trajectory, ManyHost, ManyHost]:
    hosts = {TOOL: ManyHost(tool), PLAN: ManyHost(plan)}
    trajectory = await run_locally(run, hosts)
    return trajectory, hosts[TOOL], hosts[PLAN]


async def test_the_best_candidate_is_executed_before_the_next_agent_observes() -> None:
    run = pair_run(a_task(), candidates=3)
    trajectory, tool, plan = await play(
        run,
        tool=[["nonsense", "#### [step(D)]", BFS]],
        plan=[[answer("D"), answer("UU"), TO_THE_GOAL]],
    )
    assert (trajectory.outcome, trajectory.reason) == (Outcome.SOLVED, None)
    assert trajectory.answer == TO_THE_GOAL
    assert [step.agent for step in trajectory.steps] == [TOOL, PLAN]
    assert [step.selected for step in trajectory.steps] == [2, 2]
    assert [sampling.n for sampling in (*tool.sampling, *plan.sampling)] == [3, 3]
    assert "bfs(4): D, D, D, D to row 5, column 1" in plan.prompts[0][1].content
    assert "nonsense" not in plan.prompts[0][1].content


async def test_every_candidate_is_kept_with_its_action_and_its_reward_parts() -> None:
    run = pair_run(a_task(turns=1), candidates=2)
    texts = [answer("U"), answer("D")]
    trajectory, *_ = await play(run, tool=[["#### [fly()]", BFS]], plan=[texts])
    first, second = trajectory.steps
    assert [candidate.action for candidate in first.candidates] == [
        {"did": {}, "refused": ["unknown_tool"]},
        {"did": {"moves": ["D", "D", "D", "D"]}, "refused": []},
    ]
    assert [candidate.calls[0].text for candidate in second.candidates] == texts
    bad, good = (candidate.reward_parts for candidate in second.candidates)
    assert (bad["dense.invalid"], bad["local.legal"]) == (1.0, 0.0)
    assert good["total"] == pytest.approx(1 / 8 + 1.0)
    assert good["team.progress"] == 1 / 8


async def test_all_candidates_are_scored_from_the_same_state() -> None:
    """No candidate sees another's effect: equal texts earn the same."""
    run = pair_run(a_task(turns=1, team=["plan_agent"]), candidates=3)
    trajectory, *_ = await play(run, tool=[], plan=[[answer("D")] * 3])
    parts = [candidate.reward_parts for candidate in trajectory.steps[0].candidates]
    assert parts[0] == parts[1] == parts[2]
    assert trajectory.steps[0].selected == 0


async def test_each_turn_continues_from_the_executed_action() -> None:
    run = pair_run(a_task(), candidates=2)
    trajectory, tool, plan = await play(
        run,
        tool=[[BFS, "x"], [BFS, "x"]],
        plan=[[answer("R"), answer("DDDD")], [answer("RRRR"), answer("L")]],
    )
    assert trajectory.outcome is Outcome.SOLVED
    assert "A: row 5, column 1" in tool.prompts[1][1].content
    assert "Turn 2 of 4." in plan.prompts[1][1].content
    assert [step.turn for step in trajectory.steps] == [0, 1, 2, 3]
    rebuilt = episode_of(run, trajectory.steps)
    assert rebuilt.done
    assert rebuilt.verify().solved
    assert rebuilt.actions == tuple(executed_action(step) for step in trajectory.steps)


async def test_steps_from_one_state_share_an_observation() -> None:
    """Two runs of one task share only the first group."""
    tool = [["#### [look(U)]"], ["#### [look(U)]"]]
    runs = [
        await play(pair_run(a_task(turns=2), candidates=1), tool=tool, plan=[[first], [first]])
        for first in (answer("D"), answer("R"))
    ]
    observed = [
        [step.decision.data["observed"] for step in trajectory.steps] for trajectory, *_ in runs
    ]
    assert observed[0][:2] == observed[1][:2]
    assert not set(observed[0][2:]) & set(observed[1][2:])
    assert len(set(observed[0])) == 4


async def test_a_run_out_of_turns_fails_with_the_verifier_s_reason() -> None:
    run = pair_run(a_task(turns=2), candidates=1)
    trajectory, *_ = await play(
        run, tool=[[BFS], [BFS]], plan=[[answer("D")], ["I give up: #### [U, D"]]
    )
    assert trajectory.outcome is Outcome.FAILED
    assert trajectory.reason == "the walk ends at row 2, column 1, not at the goal"
    assert trajectory.steps[-1].decision.data["done"] is True


async def test_greedy_evaluation_requests_one_completion_at_temperature_zero() -> None:
    run = pair_run(a_task(), greedy=True, candidates=8, temperature=1.0)
    _, tool, plan = await play(run, tool=[[BFS]], plan=[[TO_THE_GOAL]])
    for sampling in (*tool.sampling, *plan.sampling):
        assert (sampling.n, sampling.temperature) == (1, 0.0)


async def test_the_role_s_prompt_precedes_the_observation_unless_omitted() -> None:
    for instructions, roles in ((True, ["system", "user"]), (False, ["user"])):
        run = pair_run(a_task(), candidates=1, instructions=instructions)
        _, tool, plan = await play(run, tool=[[BFS]], plan=[[TO_THE_GOAL]])
        for messages in (*tool.prompts, *plan.prompts):
            assert [message.role for message in messages] == roles
            assert "Plan-Path, 5 x 5" in messages[-1].content


async def test_candidates_are_sampled_with_full_support_and_a_seed_of_their_turn() -> None:
    run = pair_run(a_task(turns=2), candidates=2, temperature=0.7)
    _, tool, plan = await play(
        run, tool=[["x", "x"]] * 2, plan=[[answer("U")] * 2, [answer("U")] * 2]
    )
    samplings = [*tool.sampling, *plan.sampling]
    assert {(sampling.temperature, sampling.top_p, sampling.top_k) for sampling in samplings} == {
        (0.7, 1.0, 0)
    }
    assert len({sampling.seed for sampling in samplings}) == 4


async def test_the_only_agent_plays_a_team_of_one() -> None:
    for agent, text in ((TOOL, "#### [bfs(8)]"), (PLAN, TO_THE_GOAL)):
        run = pair_run(a_task(team=[agent]), candidates=1)
        trajectory = await run_locally(run, {agent: ManyHost([[text]])})
        assert trajectory.outcome is Outcome.SOLVED
        assert [step.agent for step in trajectory.steps] == [agent]
        assert agreement_rate(trajectory) is None


async def test_each_agent_s_rewards_are_summed_over_executed_actions() -> None:
    run = pair_run(a_task(), candidates=2)
    trajectory, *_ = await play(run, tool=[["x", BFS]], plan=[[answer("U"), TO_THE_GOAL]])
    paid = rewarded(trajectory)
    assert paid == trajectory, "whoever makes a trajectory fills them in"
    assert paid.team_reward == 1.0
    assert paid.agent_rewards[PLAN] == pytest.approx(2.0)
    shaping = (0.99 * -4 + 8) / 8
    assert paid.agent_rewards[TOOL] == pytest.approx(0.5 + 0.2 + 0.8 * shaping)
    assert Trajectory.model_validate_json(paid.model_dump_json()) == paid


async def test_a_broken_run_keeps_the_rewards_its_agents_had_earned() -> None:
    run = pair_run(a_task(), candidates=1)
    broken, *_ = await play(run, tool=[[BFS]], plan=[RequestFailed("auth", "no key")])
    assert (broken.outcome, broken.team_reward) == (Outcome.ERROR, 0.0)
    assert set(broken.agent_rewards) == {TOOL}


async def test_an_error_in_rewards_names_the_environment_and_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rewards(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no way is this short")

    monkeypatch.setattr(PlanPathPuzzle, "rewards", rewards)
    with pytest.raises(
        EnvironmentFault,
        match=r"the environment 'plan_path' raised ZeroDivisionError on an action of tool_agent: "
        r"no way is this short \(test_pair\.py:\d+, in rewards\)",
    ):
        await play(pair_run(a_task(), candidates=1), tool=[[BFS]], plan=[])


def raises(*_: object) -> None:
    raise ZeroDivisionError("no way is this short")


FAULT = r"no way is this short \(test_pair\.py:\d+, in raises\); fix it, or leave such tasks out"


@pytest.mark.parametrize(
    ("owner", "name", "faulty", "when"),
    [
        (Environment, "reset", raises, "while the instance was set up"),
        (TeamEpisode, "agents", property(raises), "while its team was requested"),
        (TeamEpisode, "observe", raises, "while tool_agent observed"),
        (TeamEpisode, "by_program", property(raises), "while tool_agent observed"),
        (TeamEpisode, "copy", raises, "while the episode was copied for tool_agent"),
        (TeamEpisode, "to_run", raises, "on an action of tool_agent"),
        (TeamEpisode, "apply", raises, "on an action of tool_agent"),
        (TeamEpisode, "verify", raises, "while the action of tool_agent was verified"),
    ],
)
async def test_an_error_in_an_environment_names_the_call_and_the_remedy(
    owner: type, name: str, faulty: object, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, faulty)
    with pytest.raises(
        EnvironmentFault, match=f"environment 'plan_path' raised ZeroDivisionError {when}: {FAULT}"
    ):
        await play(pair_run(a_task(), candidates=1), tool=[[BFS]], plan=[])


async def test_an_error_in_an_environment_during_a_replay_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = pair_run(a_task(turns=1), candidates=1)
    trajectory, *_ = await play(run, tool=[[BFS]], plan=[[answer("D")]])
    monkeypatch.setattr(TeamEpisode, "apply", raises)
    with pytest.raises(
        EnvironmentFault, match=f"as an action of tool_agent was played again: {FAULT}"
    ):
        episode_of(run, trajectory.steps)
    (divergence,) = (await replay(trajectory)).divergences
    assert "the step cannot be repeated: the environment 'plan_path' raised" in divergence


async def test_a_workflow_that_has_no_rewards_or_is_not_installed_yields_none() -> None:
    whole = await run_locally(a_run("solo"), {"solo": ScriptedHost([says(r"\boxed{12}")])})
    run = whole.run.model_copy(update={"workflow": "somebody_elses"})
    for trajectory in (whole, whole.model_copy(update={"run": run})):
        assert workflows_rewarded(trajectory) == trajectory
        assert (trajectory.team_reward, trajectory.agent_rewards) == (None, {})


async def test_a_solved_or_failed_run_is_reproduced_with_its_end() -> None:
    for text, outcome in ((TO_THE_GOAL, Outcome.SOLVED), (answer("D"), Outcome.FAILED)):
        run = pair_run(a_task(turns=1), candidates=1)
        trajectory, *_ = await play(run, tool=[[BFS]], plan=[[text]])
        assert trajectory.outcome is outcome
        assert (await replay(trajectory)).reproduced


async def test_a_run_whose_last_answer_was_empty_is_reproduced_as_the_bus_records_it() -> None:
    run = pair_run(a_task(turns=1), candidates=1)
    trajectory, *_ = await play(run, tool=[[BFS]], plan=[[""]])
    assert trajectory.answer == ""
    recorded = trajectory.model_copy(update={"answer": None})
    assert (await replay(recorded)).reproduced


async def test_a_lost_game_recorded_as_solved_is_a_divergence() -> None:
    run = pair_run(a_task(turns=1), candidates=1)
    trajectory, *_ = await play(run, tool=[[BFS]], plan=[[answer("D")]])
    forged = trajectory.model_copy(update={"outcome": Outcome.SOLVED})
    (divergence,) = (await replay(forged)).divergences
    assert divergence.startswith("the end is failed")


async def test_the_options_decide_which_candidate_is_best() -> None:
    """A short walk that ends before the goal, or a detour that reaches it. With the paper's weights
    and α = 1 the near miss earns more: 7/8 + 1 against 1 + .2 + .8 · 11/14."""
    short, detour = answer("DDDDRRR"), answer("DUDUDUDDDDRRRR")
    ranked = (
        ({"scheme": "paper"}, 0),
        ({"alpha": 2.0}, 1),
        ({"scheme": "dense"}, 1),
        ({"scheme": "sparse"}, 1),
    )
    for options, best in ranked:
        run = pair_run(a_task(turns=1, team=["plan_agent"]), candidates=2, **options)
        trajectory, *_ = await play(run, tool=[], plan=[[short, detour]])
        assert trajectory.steps[0].selected == best


async def test_agreement_counts_only_turns_with_a_proposal() -> None:
    run = pair_run(a_task(turns=4), candidates=1)
    trajectory, *_ = await play(
        run,
        tool=[[BFS], ["no calls"], ["#### [look(U)]"], ["#### [step(R)]"]],
        plan=[[answer("DDDD")], [answer("U")], [answer("U")], [answer("L")]],
    )
    assert [step.decision.data.get("agrees") for step in trajectory.steps[1::2]] == [
        True,
        None,
        None,
        False,
    ]
    assert agreement_rate(trajectory) == 0.5
    always, *_ = await play(
        pair_run(a_task(turns=1), candidates=1), tool=[["#### [step(D)]"]], plan=[[answer("D")]]
    )
    assert agreement_rate(trajectory, always, always) == 0.75


@pytest.mark.parametrize("name", ["plan_path", "sokoban", "sudoku", "word_problems"])
async def test_a_solved_run_of_every_environment_is_reproduced_from_its_journal(name: str) -> None:
    """The plan agent plays the oracle's answer next to an unreadable candidate."""
    match name:
        case "plan_path":
            instance = plan_path_instances("test", 1, 1)[0]
            best = answer("".join(shortest_path(instance, instance.start)))
        case "sokoban":
            instance = sokoban_instances("test", 1, 1)[0]
            best = answer("".join(solve(*instance.parsed) or ()))
        case "sudoku":
            instance = sudoku_instances("test", 1, 1)[0]
            best = f"#### {[list(row) for row in instance.solution]}"
        case _:
            instance = word_problem_team_instances("test", 1, 1)[0]
            best = f"#### [answer({instance.answer})]"
    run = pair_run(instance.task, candidates=2)
    trajectory, *_ = await play(run, tool=[["?", "#### [oracle()]"]], plan=[["?", best]])
    assert trajectory.outcome is Outcome.SOLVED
    stored = Trajectory.model_validate_json(trajectory.model_dump_json())
    assert (await replay(stored)).steps == 2
    actions = [executed_action(step) for step in stored.steps]
    assert replay_episode(find(name), stored.run.task.instance, actions).verify().solved


async def test_too_few_completions_from_a_host_are_an_error() -> None:
    run = pair_run(a_task(), candidates=3)
    with pytest.raises(MalformedModelOutput, match="3 completions were asked for, 2 came back"):
        await play(run, tool=[["a", "b"]], plan=[])


async def test_a_permanently_failed_request_ends_the_run() -> None:
    run = pair_run(a_task())
    trajectory, *_ = await play(run, tool=[RequestFailed("auth", "no key")], plan=[])
    assert trajectory.outcome is Outcome.ERROR
    assert trajectory.reason == "tool_agent: auth: no key"


async def test_an_unknown_decision_has_no_route() -> None:
    run = pair_run(a_task(), candidates=1)
    trajectory, *_ = await play(run, tool=[[BFS]], plan=[[TO_THE_GOAL]])
    step = trajectory.steps[0]
    for decision in (
        Decision(kind="answer"),
        Decision(kind="acted", data={"done": False, "next": "solo"}),
    ):
        with pytest.raises(NoRoute):
            workflows.get("pair").route(run, (), step.model_copy(update={"decision": decision}))


def test_the_roles_are_the_agents_of_all_teams() -> None:
    assert workflows.get("pair").roles == ("player", *code_team.MEMBERS, *math_team.MEMBERS)
