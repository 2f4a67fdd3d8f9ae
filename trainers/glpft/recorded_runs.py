"""GLPFT's data from a deployment's recorded runs: examples of umi, with the texts of those runs, or
the recorded rows of a team's own agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.agents.roles.umi.settings import UmiOptions, options_of
from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.network import base_folder, load_base
from loopline.trainers.data.datasets import FORMING_OPTIONS, DataSet, build
from loopline.trainers.data.feedback import RewardThreshold
from loopline.trainers.data.sources import from_recorded
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.data.token_rows import RecordedRows
from loopline.trainers.errors import UnreadableData
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.sft.session_command import say_skipped
from loopline.trainers.sft.sessions import read_sessions

if TYPE_CHECKING:
    from loopline.trainers.glpft.options import GlpftOptions


def data_of_runs(store: Path, threshold: RewardThreshold | None = None) -> DataSet:
    """Examples of the runs of `umi` that were solved, or whose posted rewards reach a threshold.
    Raises `UnreadableData`, also if the runs read their texts in several forms: a role that learns
    several is served with one of them."""
    reading = read_trajectories(store, "umi")
    forms = {
        options_of(trajectory.run).model_dump_json(include=set(FORMING_OPTIONS))
        for trajectory in reading.records
    }
    if len(forms) > 1:
        raise UnreadableData(
            f"the runs in {store} had different options ({'; '.join(sorted(forms))}): choose one "
            "form with `train data --store`, and pass its folder with --data"
        )
    options = UmiOptions.model_validate_json(forms.pop()) if forms else UmiOptions()
    return build([from_recorded(reading, threshold)], options)


def read_agents(options: GlpftOptions, store: Path, agents: Sequence[str]) -> RecordedRows:
    """The conversations of these agents, with the ids that they read and wrote; reports what was
    left out. Raises `UnreadableData` for an agent that has none."""
    assert options.base is not None
    loaded = load_base(str(base_folder(options.base)), template_options=options.template_options)
    belongs = same_tokenizer(loaded.codec, loaded.vocabulary, loaded.end_ids)
    threshold = options.threshold(store)
    reading = read_sessions(
        store, belongs, threshold=threshold, agents=agents, workflow=options.workflow
    )
    rows = RecordedRows(reading.records)
    if threshold is not None:
        typer.echo(threshold.feedback.describe(), err=True)
    for agent in agents:
        count = sum(recorded.agent == agent for recorded in rows.rows)
        typer.echo(f"{agent}: {format_count(count, 'conversation')} to learn from", err=True)
    say_skipped(reading.skipped)
    for agent in agents:
        if agent not in rows.agents:
            raise UnreadableData(
                f"{store} has no conversation of the agent {agent!r} in runs of the workflow "
                f"{options.workflow!r} that can be learned from; there are: "
                f"{', '.join(rows.agents) or 'none'}. Calls through the gateway have the tag "
                "`agent` (metadata of the request), calls of a team the name of the agent"
            )
    return rows
