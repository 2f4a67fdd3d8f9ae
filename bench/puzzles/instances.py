"""Held-out puzzles as questions: generated ones, or published ones from files.

A puzzle's content decides whether it is in `test`, `validation` or `train`, so a model trained on
`train` has seen no other puzzle. Published puzzles have their folders as splits: `boxoban` is all
of Boxoban, `boxoban/unfiltered/test` a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from loopline.agents.environments.environment import (
    AnyEnvironment,
    Instance,
    PublishedPuzzles,
    Setting,
)
from loopline.agents.records import JsonObject
from loopline.bench.arms import Arms, team_arms
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.datasets import Dataset, Item, Request, sample
from loopline.bench.datasets.location import data_root
from loopline.bench.errors import DataError, UsageError
from loopline.bench.puzzles.baselines import baselines_of, players_by_hand
from loopline.bench.puzzles.choice import Choice, environment_of, parse_choice
from loopline.bench.puzzles.judge import CHECKERS, PuzzlesJudge, class_of
from loopline.bench.teams.sampling import MAX_RUNS

NAME = "puzzles"
DEFAULT_SAMPLES = 200
MAX_SAMPLES = 10_000
MAX_LEVELS_BYTES = 16 * 2**20
"""Maximum bytes of a file of levels. The published files have 0.12 MB for a thousand levels."""

Named = tuple[str, Instance]
"""Instance with its unique id."""


def load(request: Request) -> Dataset:
    """Return the instances: the same for the same game, size, split, number and seed. Raises
    UsageError, and DataError for files that can't be read."""
    choice = parse_choice(request.choices)
    environment, levels = choice.environment, choice.levels
    samples = DEFAULT_SAMPLES if request.samples is None else request.samples
    if not 1 <= samples <= MAX_SAMPLES:
        raise UsageError(f"--samples must lie between 1 and {MAX_SAMPLES}; got {samples}")
    if samples * choice.attempts > MAX_RUNS:
        raise UsageError(
            f"{samples:,} puzzles with {choice.attempts} attempts are more than {MAX_RUNS:,} runs; "
            "lower --samples or --attempts"
        )
    published = environment.published
    if published is not None and request.split.split("/")[0] == published.name:
        named, available, source = _load_published(request, choice, published, samples)
    else:
        named, source = _generate(request, choice, samples)
        available = len(named)
    return Dataset(
        name=NAME,
        split=request.split,
        items=tuple(_items(environment, named, request.split, choice.attempts)),
        available=available * choice.attempts,
        source=source,
        reference={
            "game": environment.key,
            "attempts": choice.attempts,
            "instances": len(named),
            "baselines": baselines_of(
                environment, levels, [instance for _, instance in named], request.seed
            ),
        },
    )


def _generate(request: Request, choice: Choice, samples: int) -> tuple[list[Named], str]:
    environment, levels, split = choice.environment, choice.levels, request.split
    if request.data is not None:
        published = environment.published
        instead = "" if published is None else f"; --split {published.name} reads puzzles"
        raise UsageError(
            f"--data has no effect with the split {split!r}, whose puzzles are generated{instead}"
        )
    try:
        drawn = environment.puzzles(split, request.seed, samples, levels)
    except ValueError as error:
        raise UsageError(f"{choice.game}: {error}") from error
    named = [(f"{NAME}/{environment.name}/{split}/{instance.id}", instance) for instance in drawn]
    about = " ".join(filter(None, (environment.name, environment.describe(levels))))
    return named, f"{about}, generated from seed {request.seed}"


def _load_published(
    request: Request, choice: Choice, published: PublishedPuzzles[Any], samples: int
) -> tuple[list[Named], int, str]:
    if choice.size is not None or choice.difficulty:
        raise UsageError(
            f"The puzzles of {published.title} are fixed: leave --size and --difficulty out"
        )
    root, files = _files(request, published)
    every: list[Named] = []
    for path in files:
        # Reports must not contain local folders.
        place = path.relative_to(root).with_suffix("").as_posix()
        every += _read(path, place, published, choice.levels.setting)
    by_id = dict(every)
    if len(by_id) != len(every):
        raise DataError(
            f"{root}: a file contains a level's number twice; each level needs its own number"
        )
    items = [Item(id=name, question="", gold="") for name in by_id]
    drawn = sample(items, samples, request.seed)
    source = f"{published.title}, {len(files)} files ({published.source})"
    return [(item.id, by_id[item.id]) for item in drawn], len(every), source


def _files(request: Request, published: PublishedPuzzles[Any]) -> tuple[Path, list[Path]]:
    """Return the base folder of the file names, and the files of the split."""
    if request.data is not None and request.data.is_file():
        return request.data.parent, [request.data]
    name = published.name
    root = data_root(published.title, request.data, published.source)
    below = (root / "puzzle" / name, root / name)
    root = next((folder for folder in below if folder.is_dir()), root)
    parts = request.split.split("/")[1:]
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"--split {request.split}: a split is {name}, or {name}/FOLDER")
    folder = root.joinpath(*parts)
    files = sorted(folder.rglob("*.txt"))
    if not files:
        folders = sorted({path.parent.relative_to(root).as_posix() for path in root.rglob("*.txt")})
        raise DataError(
            f"{folder}: there are no levels (files *.txt) here; "
            + (
                f"folders with levels: {', '.join(folders)}"
                if folders
                else f"get them from {published.source}"
            )
        )
    return root, files


def _read(
    path: Path, place: str, published: PublishedPuzzles[Any], setting: Setting
) -> Iterable[Named]:
    try:
        size = path.stat().st_size
        if size > MAX_LEVELS_BYTES:
            raise DataError(
                f"{path}: {size:,} bytes are more than the limit for a file of levels "
                f"({MAX_LEVELS_BYTES:,}): split it"
            )
        numbered = published.read(path.read_text(encoding="utf-8"), str(path), setting)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    except ValueError as error:
        raise DataError(str(error)) from error
    return [
        (f"{NAME}/{published.name}/{place}/{number}", instance) for number, instance in numbered
    ]


def _items(
    environment: AnyEnvironment, named: Sequence[Named], split: str, attempts: int
) -> Iterator[Item]:
    """Yield an instance's attempts in sequence, so that a run that stops early has complete
    instances."""
    for name, instance in named:
        task = environment.task(instance)
        for attempt in range(1, attempts + 1):
            yield Item(
                id=name if attempts == 1 else f"{name}#{attempt}",
                question=task.prompt,
                gold=environment.solution(instance),
                about={
                    "split": split,
                    "puzzle": name,
                    "task": {"environment": task.environment, "instance": task.instance},
                },
            )


def arms_of(choices: JsonObject) -> Arms:
    """Return the arms: an environment's whole team, and each agent alone. Raises UsageError."""
    environment = environment_of(choices)
    agents = environment.agents
    proposers = [spec.name for spec in agents if spec.proposes]
    alone = {
        spec.name: "its proposals are played"
        if spec.proposes
        else "without proposals"
        if proposers
        else "without the others"
        for spec in reversed(agents)
    }
    return team_arms(
        *(spec.name for spec in agents),
        name="pair" if len(agents) == 2 else "team",
        about=environment.team_does or f"in turn: {', '.join(spec.name for spec in agents)}",
        alone=alone if len(agents) > 1 else {},
        environment=environment.key,
    )


BENCHMARK = Benchmark(
    name=NAME,
    title="Puzzles",
    load=load,
    judge=lambda manifest, _: nullcontext(PuzzlesJudge()),
    checkers=CHECKERS,
    class_of=by_signals(class_of),
    arms_of=arms_of,
    default_arms="",
    options=Choice,
    workflow_options={},
    team=True,
    players_by_hand=players_by_hand,
)
