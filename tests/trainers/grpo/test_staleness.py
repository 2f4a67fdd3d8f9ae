"""The bound on how old samples may be, kept at both ends: when rollouts begin and when they are
trained on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.records import PolicyRef
from trainers.grpo.groups import Group, GroupKey, Member
from trainers.grpo.staleness import Staleness, counts_by_age, sweep


def groups_of(*versions: int) -> list[Group]:
    return [
        Group(
            GroupKey(str(number), "solo", 0, ""),
            PolicyRef(name="llm", base="micro", version=version),
            (Member(str(number), 1.0, ()),),
        )
        for number, version in enumerate(versions)
    ]


def test_rollouts_are_admitted_up_to_the_versions_that_may_still_use_them() -> None:
    bound = Staleness(limit=2, batch=10)
    assert bound.admitted(version=0, accepted=0, running=0) == 30
    assert bound.admitted(version=1, accepted=12, running=20) == 8
    assert bound.admitted(version=1, accepted=30, running=15) == 0


def test_without_a_bound_there_is_no_number_to_admit() -> None:
    with pytest.raises(ValueError, match="without a bound"):
        Staleness(limit=None, batch=1).admitted(0, 0, 0)


def test_a_sweep_drops_what_is_too_old_and_keeps_the_order() -> None:
    groups = groups_of(0, 3, 1, 2)
    swept = sweep(groups, 3, Staleness(limit=1, batch=4))
    assert [group.policy.version for group in swept.kept] == [3, 2]
    assert [group.policy.version for group in swept.dropped] == [0, 1]
    assert sweep(groups, 9, Staleness(limit=None, batch=4)).kept == tuple(groups)


def test_groups_are_counted_by_age() -> None:
    assert counts_by_age(groups_of(2, 0, 2), 2) == {0: 2, 2: 1}


@given(limit=st.integers(0, 4), batch=st.integers(1, 5), data=st.data())
def test_whoever_keeps_to_the_rule_is_never_swept(
    limit: int, batch: int, data: st.DataObject
) -> None:
    """A queue that is trained on in order, with rollouts begun at any moment that is allowed."""
    bound = Staleness(limit=limit, batch=batch)
    waiting: list[int] = []
    accepted = 0
    for version in range(8):
        begun = data.draw(st.integers(0, bound.admitted(version, accepted, 0)))
        # The next batch needs so many at least.
        begun = max(begun, batch - len(waiting))
        waiting += [version] * begun
        accepted += begun
        used, waiting = waiting[:batch], waiting[batch:]
        assert all(version - each <= limit for each in used)
