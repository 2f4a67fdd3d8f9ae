"""What the doctor says of models from the hub, by a cache of the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import Deployment

MODEL = "someone/some-model"
WHOLE = "1" * 40
BROKEN = "2" * 40
"""Commits: of one, configuration and weights were loaded; of the other no weights."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub cache that holds two revisions of one model, the default one whole."""
    cache = tmp_path_factory.mktemp("hub")
    folder = cache / f"models--{MODEL.replace('/', '--')}"
    for commit, names in (
        (WHOLE, ("config.json", "model.safetensors")),
        (BROKEN, ("config.json",)),
    ):
        (folder / "snapshots" / commit).mkdir(parents=True)
        for name in names:
            (folder / "snapshots" / commit / name).write_text("{}")
    (folder / "refs").mkdir()
    for name, commit in (("main", WHOLE), ("v1", WHOLE), ("v2", BROKEN)):
        (folder / "refs" / name).write_text(commit)
    return cache


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Deployment]:
    """A state directory in which nothing runs."""
    deployment = Deployment(tmp_path / "state")
    yield deployment
    deployment.end()


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("", "in the hub cache"),
        ("v1", "in the hub cache"),
        (WHOLE, "in the hub cache"),
        ("v2", "not in the hub cache"),
        (BROKEN, "not in the hub cache"),
        ("v3", "not in the hub cache"),
    ],
    ids=["default", "tag", "commit", "broken download", "its commit", "never loaded"],
)
def test_only_the_revision_that_a_pool_asks_for_counts_as_being_here(
    nowhere: Deployment, cache: Path, revision: str, says: str
) -> None:
    chosen = ["--set", f"models.llm.revision={revision}"] if revision else []
    done = nowhere.run(
        *("doctor", "--json", "--profile", "scripted", "--set", "models.llm.engine=torch"),
        *("--set", f"models.llm.model={MODEL}", *chosen),
        env={"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"},
    )
    found = {each["subject"]: each["says"] for each in json.loads(done.stdout)["findings"]}
    assert says in found["model llm"]
