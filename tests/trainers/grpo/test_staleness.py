"""The bound on how old samples may be, as a batch is made."""

from __future__ import annotations

from agents.records import PolicyRef
from trainers.grpo.groups import Group, GroupKey, Member
from trainers.grpo.staleness import counts_by_age, sweep


def groups_of(*versions: int) -> list[Group]:
    return [
        Group(
            GroupKey(str(number), "solo", 0, ""),
            PolicyRef(name="llm", base="micro", version=version),
            (Member(str(number), 1.0, ()),),
        )
        for number, version in enumerate(versions)
    ]


def test_a_sweep_drops_what_is_too_old_and_keeps_the_order() -> None:
    groups = groups_of(0, 3, 1, 2)
    swept = sweep(groups, 3, limit=1)
    assert [group.policy.version for group in swept.kept] == [3, 2]
    assert [group.policy.version for group in swept.dropped] == [0, 1]
    assert sweep(groups, 9, limit=None).kept == tuple(groups)


def test_groups_are_counted_by_age() -> None:
    assert counts_by_age(groups_of(2, 0, 2), 2) == {0: 2, 2: 1}
