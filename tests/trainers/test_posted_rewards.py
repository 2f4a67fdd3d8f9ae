"""Rewards in the store: each counts once, and the last version of each is in force."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from loopline.agents.rewards import Reward
from loopline.workers.recorder import REWARD_SCHEMA, Table, reward_row
from loopline.workers.store.rewards import Feedback, read_rewards, rewarded_by

from .grpo.recorded import a_candidate, a_run, a_step

RUN = a_run(1).run.id


def reward(value: float, reward_id: str = "", **changes: object) -> Reward:
    target = {} if "session" in changes else {"run_id": RUN}
    return Reward.model_validate(
        {"id": reward_id or f"v{value}", "source": "user", "value": value, **target, **changes}
    )


async def record_rewards(store: Path, *rewards: Reward, batch: int = 1, shard: int = 0) -> None:
    """Write rewards with the recorder's own table, after the existing ones."""
    table = Table(store / "rewards", shard, REWARD_SCHEMA, reward_row)
    await table.write(
        [
            (f"{batch}-{at}", {b"reward": item.model_dump_json().encode(), b"at": b"1500"})
            for at, item in enumerate(rewards)
        ]
    )


async def test_the_latest_reward_for_a_target_counts_and_all_versions_are_kept(
    tmp_path: Path,
) -> None:
    await record_rewards(tmp_path, reward(1.0), reward(0.5), reward(0.25, source="judge"))
    await record_rewards(tmp_path, reward(-1.0), batch=2)
    rewards = read_rewards(tmp_path)
    assert [item.value for item in rewards.versions[reward(1.0).place]] == [1.0, 0.5, -1.0]
    counted = rewards.of_target()[RUN]
    assert {(item.source, item.value) for item in counted} == {("user", -1.0), ("judge", 0.25)}
    assert [item.value for item in rewards.of_target(["judge"])[RUN]] == [0.25]


async def test_versions_stay_in_order_after_the_number_of_shards_changes(
    tmp_path: Path,
) -> None:
    await record_rewards(tmp_path, reward(1.0), batch=9, shard=3)
    await record_rewards(tmp_path, reward(0.0), batch=10, shard=0)
    [counted] = read_rewards(tmp_path).of_target()[RUN]
    assert counted.value == 0.0


async def test_a_reward_accepted_twice_counts_at_its_first_position(tmp_path: Path) -> None:
    """The bus had forgotten its id: after a server lost its last second, or a week later."""
    await record_rewards(tmp_path, reward(1.0, "a"), reward(0.5, "b"))
    await record_rewards(tmp_path, reward(1.0, "a"), batch=2)
    rewards = read_rewards(tmp_path)
    assert [item.reward.id for item in rewards.rewards] == ["a", "b"]
    [counted] = rewards.of_target()[RUN]
    assert counted.value == 0.5


async def test_rewards_recorded_after_the_given_entries_are_left_out(
    tmp_path: Path,
) -> None:
    await record_rewards(tmp_path, reward(1.0))
    entries = [item.entry for item in read_rewards(tmp_path).rewards]
    await record_rewards(tmp_path, reward(0.0), batch=2)
    [counted] = read_rewards(tmp_path, entries).of_target()[RUN]
    assert counted.value == 1.0


async def test_changed_rows_and_rows_of_a_newer_program_are_skipped_with_the_reason(
    tmp_path: Path,
) -> None:
    await record_rewards(tmp_path, reward(1.0), reward(0.5, version=2), reward(0.25, agent="b"))
    [file] = (tmp_path / "rewards").iterdir()
    rows = pq.read_table(file).to_pylist()
    rows[0]["reward"] = rows[0]["reward"].replace("1.0", "9.0")
    pq.write_table(pa.Table.from_pylist(rows, schema=REWARD_SCHEMA), file)
    rewards = read_rewards(tmp_path)
    assert [entry.reason for entry in rewards.skipped] == [
        "record that was changed after it was written: its hash differs",
        "records of another schema version",
    ]


def test_a_store_without_rewards_has_none(tmp_path: Path) -> None:
    assert read_rewards(tmp_path).rewards == ()


def test_posted_rewards_replace_recorded_ones() -> None:
    run = a_run(
        1,
        a_step([a_candidate(9.0), a_candidate(8.0)], agent="coder", turn=0, selected=1),
        a_step([a_candidate(9.0)], agent="tester", turn=1),
        reward=7.0,
        agent_rewards={"coder": 6.0},
    )
    feedback = Feedback.of(
        [
            reward(1.0), reward(0.5, source="judge"), reward(0.25, agent="coder"),
            reward(2.0, turn=0), reward(4.0, turn=1, agent="tester"),
            reward(8.0, turn=1, agent="coder"),
        ]
    )  # fmt: skip
    joined = rewarded_by(run, feedback)
    assert joined.team_reward == 1.5
    assert joined.agent_rewards == {"coder": 2.25, "tester": 4.0}
    not_executed, executed = joined.steps[0].candidates
    assert not_executed.reward_parts == {}
    assert executed.reward_parts == {"team": 1.5, "agent": 0.25, "turn": 2.0}
    assert joined.steps[1].candidates[0].reward_parts == {"team": 1.5, "turn": 4.0}
