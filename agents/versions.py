"""Versions in flight: a run is finished with the roles and the workflow that it started with, or
with later ones that declare that they continue it.

`Run.role_versions` and `Run.workflow_version` record the versions that it started with. A role or
workflow with a higher version may finish earlier runs if its attribute `continues` lists their
versions:

    class Planner:
        name = "planner"
        version = 3
        continues = (2,)  # runs of version 1 wait for a worker of that version

Without it, a worker hands such a run's steps back for a worker of the other version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import ValidationError

from loopline.agents.errors import UnknownName, VersionMismatch
from loopline.agents.records import RECORDS_VERSION, Run, Step, StoredRecord, Trajectory
from loopline.agents.roles import roles
from loopline.agents.workflows import Workflow, workflows

R = TypeVar("R", bound=StoredRecord)


def read_run(text: str | bytes) -> Run:
    """Parse a run as stored on the bus. Raises `VersionMismatch` naming the invalid field, or both
    versions."""
    return _read(Run, text)


def read_steps(texts: Sequence[str | bytes]) -> tuple[Step, ...]:
    """Parse a journal as stored on the bus. Raises `VersionMismatch` naming the invalid field."""
    return tuple(_read(Step, text) for text in texts)


def read_trajectory(text: str | bytes) -> Trajectory:
    """Parse a trajectory as stored. Raises `VersionMismatch` like `read_run`."""
    return _read(Trajectory, text)


def _read(kind: type[R], text: str | bytes) -> R:
    try:
        record = kind.model_validate_json(text)
    except ValidationError as error:
        raise VersionMismatch(_mismatch_message(kind, text, error)) from None
    version = getattr(record, "version", RECORDS_VERSION)
    if version > RECORDS_VERSION:
        raise VersionMismatch(
            f"a {kind.__name__.lower()} has version {version} of the records, but this process"
            f" reads only up to {RECORDS_VERSION}"
        )
    return record


def _mismatch_message(kind: type[StoredRecord], text: str | bytes, error: ValidationError) -> str:
    try:
        version = json.loads(text)["version"]
    except (ValueError, KeyError, TypeError):
        version = RECORDS_VERSION
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole record"
    return (
        f"a {kind.__name__.lower()} of version {version!s:.20} of the records does not fit this "
        f"version, which reads up to {RECORDS_VERSION}: {where}: {first['msg']}"
    )


def without_unknown_fields(record: R) -> R:
    """The record as this version would have written it, for comparison."""
    return type(record).model_validate(record.model_dump(), extra="ignore")


def versions_of(workflow: str) -> tuple[int, dict[str, int]]:
    """The workflow's version, and role → version of all its roles. Raises `UnknownName` and
    `PluginError`."""
    definition = workflows.get(workflow)
    return workflow_version(definition), {
        role: roles.get(role).version for role in definition.roles
    }


def workflow_version(workflow: Workflow) -> int:
    """Version of a workflow; 1 if it declares none."""
    return int(getattr(workflow, "version", 1))


def require_versions(run: Run, role: str) -> None:
    """Raise `VersionMismatch` if this process may not execute a step of that role in this run."""
    try:
        workflow = workflows.get(run.workflow)
    except UnknownName as error:
        raise VersionMismatch(f"run {run.id}: {error}") from error
    if run.workflow_version:
        here = workflow_version(workflow)
        _require(run, f"workflow {run.workflow!r}", run.workflow_version, here, workflow)
    if role in run.role_versions:
        item = roles.get(role)
        _require(run, f"role {role!r}", run.role_versions[role], item.version, item)


def _continues(began: int, here: int, item: object) -> bool:
    return began == here or began in getattr(item, "continues", ())


def _require(run: Run, what: str, began: int, here: int, item: object) -> None:
    if not _continues(began, here, item):
        raise VersionMismatch(
            f"run {run.id} began with version {began} of the {what}, but this process has {here},"
            f" which can't continue it (`continues`)"
        )


def changed_versions(run: Run) -> Mapping[str, tuple[int, int]]:
    """Roles and workflow whose version here differs from the run's and does not continue it: name →
    both versions. Raises `UnknownName` and `PluginError`."""
    workflow = workflows.get(run.workflow)
    pairs: dict[str, tuple[int, int]] = {}
    for role in workflow.roles:
        began, item = run.role_versions.get(role), roles.get(role)
        if began is not None and not _continues(began, item.version, item):
            pairs[f"role {role}"] = (began, item.version)
    here = workflow_version(workflow)
    if run.workflow_version and not _continues(run.workflow_version, here, workflow):
        pairs[f"workflow {run.workflow}"] = (run.workflow_version, here)
    return pairs
