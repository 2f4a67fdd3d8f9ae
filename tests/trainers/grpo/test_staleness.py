"""The bound on the age of samples when a batch is made."""

from __future__ import annotations

from loopline.agents.records import PolicyRef
from loopline.trainers.grpo.groups import Group, GroupKey, Member
from loopline.trainers.grpo.learnable import counts_by_age, is_too_old


def groups_of(*versions: int) -> list[Group]:
    return [
        Group(
            GroupKey(str(number), "solo", 0, ""),
            PolicyRef(name="llm", base="micro", version=version),
            (Member(str(number), 1.0, ()),),
        )
        for number, version in enumerate(versions)
    ]


def test_a_group_is_too_old_if_more_versions_followed_than_the_bound_allows() -> None:
    groups = groups_of(0, 3, 1, 2)
    assert [is_too_old(group, 3, limit=1) for group in groups] == [True, False, True, False]
    assert not any(is_too_old(group, 9, limit=None) for group in groups)


def test_groups_are_counted_by_age() -> None:
    assert counts_by_age(groups_of(2, 0, 2), 2) == {0: 2, 2: 1}
