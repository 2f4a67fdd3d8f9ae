"""Held-out puzzles as questions: generated ones, or Boxoban's levels from their files.

The splits `test`, `validation` and `train` are decided by a puzzle's content, so a model that was
trained on `train` has seen none of the others. Boxoban's splits are its folders: `boxoban` is all
of them, `boxoban/unfiltered/test` one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from loopline.agents.environments import plan_path, sokoban, sudoku, word_problem_team
from loopline.agents.environments.puzzles import Instance, drawn_puzzles, size_of
from loopline.agents.environments.sokoban.instance import SokobanSetting
from loopline.bench.arms import team_arms
from loopline.bench.benchmark import Benchmark, by_signals
from loopline.bench.datasets import Dataset, Item, Request, sample
from loopline.bench.datasets.location import data_root
from loopline.bench.errors import DataError, UsageError
from loopline.bench.puzzles.baselines import baselines_of, players_by_hand
from loopline.bench.puzzles.choice import Choice, chosen
from loopline.bench.puzzles.judge import CHECKERS, PuzzlesJudge, class_of
from loopline.bench.teams.sampling import MAX_RUNS

NAME = "puzzles"
DEFAULT_SAMPLES = 200
MAX_SAMPLES = 10_000
BOXOBAN = "boxoban"
SOURCE = "https://github.com/google-deepmind/boxoban-levels"
MAX_LEVELS_BYTES = 16 * 2**20
"""Of a file of levels. The published ones have 0.12 MB, for a thousand levels."""

Named = tuple[str, Instance]
"""An instance under an id of its own."""


def load(request: Request) -> Dataset:
    """The same instances for the same game, size, split, number and seed. Raises UsageError, and
    DataError for files that can't be read."""
    choice = chosen(request.choices)
    samples = DEFAULT_SAMPLES if request.samples is None else request.samples
    if not 1 <= samples <= MAX_SAMPLES:
        raise UsageError(f"--samples must lie between 1 and {MAX_SAMPLES}; got {samples}")
    if samples * choice.attempts > MAX_RUNS:
        raise UsageError(
            f"{samples:,} puzzles with {choice.attempts} attempts are more than {MAX_RUNS:,} runs; "
            "lower --samples or --attempts"
        )
    if request.split.split("/")[0] == BOXOBAN:
        named, available, source = _boxoban(request, choice, samples)
    else:
        named, source = _generated(request, choice, samples)
        available = len(named)
    return Dataset(
        name=NAME,
        split=request.split,
        items=tuple(_items(named, request.split, choice.attempts)),
        available=available * choice.attempts,
        source=source,
        reference={
            "game": choice.game,
            "attempts": choice.attempts,
            "instances": len(named),
            "baselines": baselines_of(choice.levels, [one for _, one in named], request.seed),
        },
    )


def _generated(request: Request, choice: Choice, samples: int) -> tuple[list[Named], str]:
    if request.data is not None:
        raise UsageError(
            f"--data is of no use for the split {request.split!r}, whose puzzles are generated; "
            "of sokoban, --split boxoban reads levels"
        )
    split, levels = request.split, choice.levels
    try:
        found = drawn_puzzles(levels, split, request.seed, samples)
    except ValueError as error:
        raise UsageError(f"{choice.game}: {error}") from error
    named = [(f"{NAME}/{choice.game}/{split}/{one.id}", one) for one in found]
    return named, f"{choice.game} {size_of(levels)}, generated from seed {request.seed}"


def _boxoban(request: Request, choice: Choice, samples: int) -> tuple[list[Named], int, str]:
    match choice.levels:
        case sokoban.Difficulty(setting=setting):
            pass
        case _:
            raise UsageError(
                f"the split {request.split!r} has levels of sokoban, not {choice.game}"
            )
    if choice.size is not None or choice.difficulty:
        raise UsageError("Boxoban's levels are as they are: leave --size and --difficulty out")
    root, files = _files(request)
    every: list[Named] = []
    for path in files:
        # A report names no folder of this machine.
        place = path.relative_to(root).with_suffix("").as_posix()
        every += _levels(path, place, setting)
    by_id = dict(every)
    if len(by_id) != len(every):
        raise DataError(f"{root}: a level's number stands twice in one file; it should be its name")
    items = [Item(id=name, question="", gold="") for name in by_id]
    drawn = sample(items, samples, request.seed)
    source = f"Boxoban, {len(files)} files ({SOURCE})"
    return [(item.id, by_id[item.id]) for item in drawn], len(every), source


def _files(request: Request) -> tuple[Path, list[Path]]:
    """The folder that file names are told from, and the files of the split."""
    if request.data is not None and request.data.is_file():
        return request.data.parent, [request.data]
    root = data_root("Boxoban", request.data, SOURCE)
    below = (root / "puzzle" / BOXOBAN, root / BOXOBAN)
    root = next((folder for folder in below if folder.is_dir()), root)
    parts = request.split.split("/")[1:]
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"--split {request.split}: a split is boxoban, or boxoban/FOLDER")
    folder = root.joinpath(*parts)
    files = sorted(folder.rglob("*.txt"))
    if not files:
        known = sorted({path.parent.relative_to(root).as_posix() for path in root.rglob("*.txt")})
        raise DataError(
            f"{folder}: there are no levels (files *.txt) here; "
            + (f"folders with levels: {', '.join(known)}" if known else f"get them from {SOURCE}")
        )
    return root, files


def _levels(path: Path, place: str, setting: SokobanSetting) -> Iterable[Named]:
    try:
        size = path.stat().st_size
        if size > MAX_LEVELS_BYTES:
            raise DataError(
                f"{path}: {size:,} bytes are more than a file of levels may have "
                f"({MAX_LEVELS_BYTES:,}): split it"
            )
        text = path.read_text(encoding="utf-8")
        found = sokoban.read_boxoban(text, origin=str(path), setting=setting)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    except ValueError as error:
        raise DataError(str(error)) from error
    return [(f"{NAME}/{BOXOBAN}/{place}/{one.number}", one.instance) for one in found]


def _items(named: Sequence[Named], split: str, attempts: int) -> Iterator[Item]:
    """An instance's attempts one after the other: a run that stops early has whole instances."""
    for name, instance in named:
        task = instance.task
        for attempt in range(1, attempts + 1):
            yield Item(
                id=name if attempts == 1 else f"{name}#{attempt}",
                question=task.prompt,
                gold=_wanted(instance),
                about={
                    "split": split,
                    "puzzle": name,
                    "task": {"environment": task.environment, "instance": task.instance},
                },
            )


def _wanted(instance: Instance) -> str:
    """What a reader of the report compares with; the judge does not need it."""
    match instance:
        case plan_path.PlanPathInstance():
            return f"{''.join(plan_path.shortest_path(instance, instance.start))}, or another way"
        case sudoku.SudokuInstance():
            return " ".join("".join(map(str, row)) for row in instance.solution)
        case sokoban.SokobanInstance():
            return "every box on a target"
        case word_problem_team.WordProblemInstance():
            return str(instance.answer)


BENCHMARK = Benchmark(
    name=NAME,
    title="Puzzles",
    load=load,
    judge=lambda manifest, _: nullcontext(PuzzlesJudge()),
    checkers=CHECKERS,
    class_of=by_signals(class_of),
    arms=team_arms(
        "tool_agent",
        "plan_agent",
        name="pair",
        about="a tool agent proposes, a plan agent acts",
        alone={"plan_agent": "without proposals", "tool_agent": "its proposals are played"},
    ),
    default_arms="pair",
    options=Choice,
    workflow_options={},
    team=True,
    players_by_hand=players_by_hand,
)
