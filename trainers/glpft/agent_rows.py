"""The recorded rows of a team's own agents: what GLPFT learns where the roles are not those of
umi."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loopline.runtime.terminal.pluralize import format_count
from loopline.trainers.core.network import base_folder, load_base
from loopline.trainers.data.token_rows import RecordedRows
from loopline.trainers.errors import UnreadableData
from loopline.trainers.grpo.sequences import same_tokenizer
from loopline.trainers.sft.session_command import say_skipped
from loopline.trainers.sft.sessions import read_sessions

if TYPE_CHECKING:
    from loopline.trainers.glpft.options import GlpftOptions


def read_agents(options: GlpftOptions, store: Path, agents: Sequence[str]) -> RecordedRows:
    """The conversations of these agents, in the ids that they read and wrote; says what was left
    out. Raises `UnreadableData` for an agent that has none."""
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
