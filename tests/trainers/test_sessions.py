"""Conversations built from single calls: each call is in exactly one, in whatever order they are
read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loopline.agents.records import Trajectory
from loopline.agents.rewards import Reward
from loopline.trainers.data.sessions import ChatCall, Conversation, chat_calls, conversations
from loopline.workers.store.rewards import Feedback

from .grpo.recorded import a_call, a_candidate, a_run, a_step


def chat(
    number: int,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    version: int = 0,
    session: str | None = "s",
    **tags: str,
) -> Trajectory:
    """Run `number`: one call of a client. Later numbers started later."""
    call = a_call(prompt, output, version=version)
    run = a_run(number, a_step([a_candidate(0.0, call)], agent="chat"), workflow="chat")
    step = run.steps[0].model_copy(
        update={"timings": run.steps[0].timings.model_copy(update={"started": float(number)})}
    )
    names = tags if session is None else {"session": session, **tags}
    return run.model_copy(
        update={"run": run.run.model_copy(update={"tags": names}), "steps": (step,)}
    )


def of(*runs: Trajectory) -> list[list[int]]:
    """The conversations of these runs, as the numbers of their runs."""
    return [numbers(entry) for entry in conversations(calls_of(runs))]


def calls_of(runs: Sequence[Trajectory]) -> list[ChatCall]:
    return [call for run in runs for call in chat_calls(run)]


def numbers(conversation: Conversation) -> list[int]:
    return [int(call.trajectory.run.id[-12:]) for call in conversation.calls]


def test_calls_whose_prompts_extend_each_other_form_one_conversation_tokenized_once() -> None:
    runs = chat(1, [1, 2], [3]), chat(2, [1, 2, 3, 9], [4, 5])
    [conversation] = conversations(calls_of(runs))
    assert numbers(conversation) == [1, 2]
    assert conversation.ids == (1, 2, 3, 9, 4, 5)
    assert conversation.learned == (False, False, True, False, True, True)


def test_a_call_that_extends_nothing_starts_a_conversation() -> None:
    assert of(chat(1, [1, 2], [3]), chat(2, [1, 2, 8], [4])) == [[1], [2]]


def test_the_second_of_two_calls_that_extend_the_same_call_is_a_sibling() -> None:
    runs = chat(1, [1], [2]), chat(2, [1, 2, 3], [4]), chat(3, [1, 2, 5], [6])
    first, second = conversations(calls_of(runs))
    assert (numbers(first), numbers(second)) == ([1, 2], [3])
    assert second.ids == (1, 2, 5, 6)
    assert second.learned == (False, False, False, True), "what they share is only observed"


def test_parallel_calls_of_one_prompt_are_siblings() -> None:
    assert of(chat(1, [1, 2], [3]), chat(2, [1, 2], [3]), chat(3, [1, 2, 3, 4], [5])) == [
        [1, 3],
        [2],
    ]


def test_a_call_continues_the_longest_conversation_that_it_extends() -> None:
    runs = chat(1, [1], [2]), chat(2, [1, 2, 3], [4]), chat(3, [1, 2, 3, 4, 5], [6])
    assert of(*runs) == [[1, 2, 3]]


def test_a_call_can_extend_one_that_a_slow_clock_dates_after_it() -> None:
    assert of(chat(2, [1], [2]), chat(1, [1, 2, 3], [4])) == [[2, 1]]


def test_sessions_agents_and_policy_versions_have_separate_conversations() -> None:
    extended = [1, 2, 3]
    runs = (
        chat(1, [1], [2]),
        chat(2, extended, [4], session="t"),
        chat(3, extended, [4], agent="critic"),
        chat(4, extended, [4], version=1),
        chat(5, extended, [4], session=None),
    )
    assert of(*runs) == [[1], [2], [3], [4], [5]]


def test_calls_without_token_ids_extend_nothing() -> None:
    assert of(chat(1, [], []), chat(2, [], []), chat(3, [1], [2])) == [[1], [2], [3]]


STEP = st.tuples(
    st.integers(0, 5),  # which earlier call is extended, if any
    st.booleans(),  # whether one is
    st.lists(st.integers(0, 2), max_size=2),  # the observation in between
    st.lists(st.integers(0, 2), max_size=2),  # the output
    st.sampled_from(["s", "t"]),
)


@given(st.lists(STEP, max_size=12), st.integers())
def test_each_call_is_in_exactly_one_conversation_in_which_each_extends_the_one_before(
    steps: list[tuple[int, bool, list[int], list[int], str]], seed: int
) -> None:
    runs: list[Trajectory] = []
    for number, (which, extends, observed, output, session) in enumerate(steps):
        before = calls_of(runs)
        beginning = list(before[which % len(before)].ids) if extends and before else []
        runs.append(chat(number, [*beginning, *observed], output, session=session))
    result = conversations(calls_of(runs))
    assert sorted(number for entry in result for number in numbers(entry)) == [*range(len(runs))]
    for conversation in result:
        for earlier, later in pairwise(conversation.calls):
            assert later.ids[: len(earlier.ids)] == earlier.ids
            assert later.session == earlier.session
        # Selected by the mask, the ids are the outputs of the calls, one after the other.
        written = [
            token for token, is_ in zip(conversation.ids, conversation.learned, strict=True) if is_
        ]
        assert written == [token for call in conversation.calls for token in call.call.output_ids]
        assert len(conversation.learned) == len(conversation.ids)
    extended = {call.trajectory.run.id for entry in result for call in entry.calls[:-1]}
    for conversation in result:
        first = conversation.calls[0]
        for other in calls_of(runs):
            if other.ids and other.session == first.session and other.place != first.place:
                prompt = first.call.prompt_ids
                if prompt[: len(other.ids)] == other.ids and len(prompt) > len(
                    other.call.prompt_ids
                ):
                    # It starts a conversation only because that call, or a longer one with the
                    # same ids, has already been continued.
                    longer = [
                        call.trajectory.run.id
                        for call in calls_of(runs)
                        if call.session == first.session
                        and len(call.ids) >= len(other.ids)
                        and prompt[: len(call.ids)] == call.ids
                    ]
                    assert extended.intersection(longer)
    shuffled = runs.copy()
    random.Random(seed).shuffle(shuffled)
    assert conversations(calls_of(shuffled)) == result


def reward(value: float, **changes: object) -> Reward:
    return Reward.model_validate({"id": "r", "source": "user", "value": value, **changes})


def test_session_rewards_reach_every_conversation_and_run_rewards_only_their_own() -> None:
    runs = chat(1, [1], [2]), chat(2, [1, 2, 3], [4]), chat(3, [7], [8])
    [long, short] = conversations(calls_of(runs))
    by_target = {
        "session/s": [reward(1.0, session="s")],
        runs[0].run.id: [reward(0.5, run_id=runs[0].run.id)],
        runs[1].run.id: [reward(0.25, run_id=runs[1].run.id, turn=0)],
    }
    assert long.feedback(by_target) == Feedback(1.5, {"chat": 0.25})
    assert short.feedback(by_target) == Feedback(1.0)
    assert not short.feedback({})


def test_rewards_of_an_agent_reach_only_its_conversations() -> None:
    runs = chat(1, [1], [2], agent="writer"), chat(2, [7], [8], agent="critic")
    [writer, critic] = conversations(calls_of(runs))
    by_target = {"session/s": [reward(1.0, session="s", agent="critic")]}
    assert not writer.feedback(by_target)
    assert critic.feedback(by_target) == Feedback(None, {"critic": 1.0})


def test_a_conversation_is_one_run_whose_task_is_its_first_prompt() -> None:
    runs = chat(1, [1], [2]), chat(2, [1, 2, 3], [4])
    [merged] = [entry.trajectory() for entry in conversations(calls_of(runs))]
    assert merged.run.id == runs[0].run.id
    assert [len(step.calls) for step in merged.steps] == [2]
    other, _ = chat(3, [1], [2], session="t"), None
    [alike] = [entry.trajectory() for entry in conversations(calls_of([other]))]
    assert alike.run.task == merged.run.task


def test_sessions_with_one_tag_share_one_task_per_conversation() -> None:
    """Two conversations of one session do not compete with each other."""
    runs = [
        chat(number, [number], [5], session=session, group="A7")
        for number, session in enumerate(("s", "s", "t", "t"))
    ]
    tasks = [entry.trajectory().run.task for entry in conversations(calls_of(runs))]
    assert tasks[0] == tasks[2] != tasks[1] == tasks[3]
