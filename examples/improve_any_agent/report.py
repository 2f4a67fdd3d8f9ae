"""A report that shows whether the agent has improved."""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tasks import KINDS, Task

FILE = "result.json"
WIDTH = 40
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Result:
    """Results of one seed: the share of right samples of each held-out task."""

    seed: int
    before: list[float]
    after: list[float]
    cpu_minutes: float

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        path = folder / FILE
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self)))

    def row(self) -> str:
        """The mean difference of the tasks, with its 95 % interval from the normal distribution."""
        pairs = zip(self.before, self.after, strict=True)
        differences = [100 * (after - before) for before, after in pairs]
        mean = statistics.fmean(differences)
        half = NORMAL_95 * statistics.stdev(differences) / len(differences) ** 0.5
        interval = f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"
        shares = f"{statistics.fmean(self.before):8.1%} {statistics.fmean(self.after):8.1%}"
        return f"{self.seed:>4} {shares}   {interval:<24} {self.cpu_minutes:11.1f}"


def show(results: list[Result], held_out: list[Task]) -> None:
    """Print a row for each seed, and a bar for each kind of question."""
    print(f"\n{len(held_out)} held-out tasks, answered greedily\n")
    print("seed   before    after   difference, 95 %         CPU-minutes")
    for result in results:
        print(result.row())
    print("\nbefore # and after +, all seeds\n")
    for kind, text in enumerate(KINDS):
        places = [at for at, task in enumerate(held_out) if task.kind == kind]
        if not places:
            continue
        before = statistics.fmean(result.before[at] for result in results for at in places)
        after = statistics.fmean(result.after[at] for result in results for at in places)
        low, high = (round(WIDTH * share) for share in sorted((before, after)))
        bar = "#" * low + ("+" if after > before else "#") * (high - low)
        print(f"{before:4.0%} {after:4.0%} {bar:<{WIDTH}} {text[:60]}")
