"""Records of other versions of this program, and runs that started with other role versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from loopline.agents.errors import VersionMismatch
from loopline.agents.payloads import (
    Payload,
    SubtaskPayload,
    Upcaster,
    parse_payload,
    payload_type,
)
from loopline.agents.records import Budget, JsonObject, Run, Step
from loopline.agents.replay import replay
from loopline.agents.roles import roles
from loopline.agents.versions import (
    changed_versions,
    read_run,
    read_steps,
    require_versions,
    versions_of,
    without_unknown_fields,
)
from loopline.agents.workflow_runner import run_locally
from tests.agents.conversations import ScriptedHost, a_run, says


def test_a_rewritten_record_keeps_the_fields_of_a_later_version() -> None:
    text = a_run("solo").model_copy(update={"budget": Budget()}).model_dump_json()
    later = text[:-1] + ',"later":{"a":[1]}}'
    later = later.replace('"seconds":600.0', '"seconds":600.0,"calls":7')
    again = read_run(later).model_dump_json()
    assert '"later":{"a":[1]}' in again
    assert '"calls":7' in again
    assert without_unknown_fields(read_run(later)).model_dump_json() == text


@pytest.mark.parametrize(
    ("change", "says_so"),
    [
        ({"version": 9}, "has version 9 of the records, but this process reads only up to 1"),
        ({"deadline": "soon"}, "does not fit this version, which reads up to 1: deadline"),
    ],
)
def test_the_error_for_an_unreadable_record_names_the_versions(
    change: dict[str, Any], says_so: str
) -> None:
    text = a_run("solo").model_copy(update=change).model_dump_json(warnings=False)
    with pytest.raises(VersionMismatch, match=says_so):
        read_run(text)


def test_the_error_for_an_invalid_step_names_the_missing_field() -> None:
    with pytest.raises(VersionMismatch, match=r"a step of version 1 .* turn: Field required"):
        read_steps([b'{"run_id": "r"}'])


@payload_type
class Errand(Payload):
    """The third version: `place` became optional in 2, and `what` was called `errand` in 1."""

    type_name: ClassVar[str] = "errand"
    type_version: ClassVar[int] = 3
    readable_from: ClassVar[int] = 2
    upcasts: ClassVar[Mapping[int, Upcaster]] = {1: lambda old: {"what": old["errand"]}}

    what: str
    place: str = ""


def test_a_journal_of_an_earlier_version_is_upgraded() -> None:
    assert parse_payload({"type": "errand", "errand": "bread"}) == Errand(what="bread")
    second: JsonObject = {"type": "errand", "type_version": 2, "readable_from": 2, "what": "milk"}
    assert parse_payload(second) == Errand(what="milk")


def test_a_compatible_payload_of_a_later_version_is_read_and_written_unchanged() -> None:
    data = SubtaskPayload(problem="p", expected_type="number", asked_turn=0).as_json()
    later = {**data, "type_version": 4, "readable_from": 1, "hint": "h"}
    payload = parse_payload(later)
    assert isinstance(payload, SubtaskPayload)
    assert payload.as_json() == later
    with pytest.raises(
        VersionMismatch, match="'subtask' in version 4, but this process reads only"
    ):
        parse_payload({**later, "readable_from": 2})


def test_a_payload_states_its_version_from_the_second_version_on() -> None:
    assert (
        "type_version"
        not in SubtaskPayload(problem="p", expected_type="number", asked_turn=0).as_json()
    )
    written = Errand(what="bread").as_json()
    assert (written["type_version"], written["readable_from"]) == (3, 2)
    assert parse_payload(written) == Errand(what="bread")


def began_with(**role_versions: int) -> Run:
    return a_run("solo").model_copy(update={"role_versions": role_versions})


def test_a_run_plays_with_the_role_versions_that_it_started_with() -> None:
    version, role_versions = versions_of("solo")
    run = began_with(**role_versions).model_copy(update={"workflow_version": version})
    require_versions(run, "solo")
    require_versions(a_run("solo"), "solo")  # of an older client, which sends no version
    assert changed_versions(run) == {}


def test_a_run_that_started_with_another_role_version_is_not_played() -> None:
    run = began_with(solo=7)
    with pytest.raises(VersionMismatch, match="began with version 7 of the role 'solo', but this"):
        require_versions(run, "solo")
    assert changed_versions(run) == {"role solo": (7, roles.get("solo").version)}


def test_a_role_plays_runs_of_a_version_that_it_declares_compatible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(roles.get("solo")), "continues", (7,), raising=False)
    require_versions(began_with(solo=7), "solo")
    with pytest.raises(VersionMismatch, match="version 6"):
        require_versions(began_with(solo=6), "solo")


def test_a_run_of_an_unknown_workflow_is_left_to_other_workers() -> None:
    run = a_run("solo").model_copy(update={"workflow": "later"})
    with pytest.raises(VersionMismatch, match="there is no workflow 'later'"):
        require_versions(run, "solo")


async def test_a_replay_compares_only_fields_that_both_versions_have() -> None:
    ended = await run_locally(a_run("solo"), {"solo": ScriptedHost([says(r"\boxed{4}")])})
    steps = tuple(
        Step.model_validate(
            {
                **step.model_dump(),
                "remark": "later",
                "input": {**step.input, "hint": "later", "type_version": 2, "readable_from": 1},
            }
        )
        for step in ended.steps
    )
    result = await replay(ended.model_copy(update={"steps": steps}))
    assert result.divergences == ()


def test_user_written_input_may_contain_only_known_fields() -> None:
    from loopline.runtime.gateway.runs_request import CreateRun

    with pytest.raises(ValidationError, match="secnods"):
        CreateRun.model_validate({"workflow": "solo", "prompt": "p", "budget": {"secnods": 1}})
