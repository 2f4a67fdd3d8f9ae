"""The data set of a deployment's recorded runs, in the texts that those runs met."""

from __future__ import annotations

from pathlib import Path

from loopline.agents.roles.umi.settings import UmiOptions, options_of
from loopline.trainers.data.datasets import FORMING_OPTIONS, DataSet, build
from loopline.trainers.data.feedback import RewardThreshold
from loopline.trainers.data.sources import from_recorded
from loopline.trainers.data.store import read_trajectories
from loopline.trainers.errors import UnreadableData


def data_of_runs(store: Path, threshold: RewardThreshold | None = None) -> DataSet:
    """Examples of the runs of `umi` that were solved, or that are worth enough by a threshold of
    posted rewards. Raises `UnreadableData`, also if the runs did not all
    read their texts in one form: a role that learns several is served with one of them."""
    reading = read_trajectories(store, "umi")
    forms = {
        options_of(trajectory.run).model_dump_json(include=set(FORMING_OPTIONS))
        for trajectory in reading.records
    }
    if len(forms) > 1:
        raise UnreadableData(
            f"the runs in {store} had different options ({'; '.join(sorted(forms))}): choose one "
            "form by `train data --store`, and give its folder by --data"
        )
    options = UmiOptions.model_validate_json(forms.pop()) if forms else UmiOptions()
    return build([from_recorded(reading, threshold)], options)
