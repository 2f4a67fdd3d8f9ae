"""What `bench training` found, and the ratios that matter."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from loopline.bench.proofs.training.workload import Measured, Prepared
from loopline.bench.statistics import Spread, spread

OURS = "ours"


@dataclass
class Report:
    """All figures."""

    size: str
    prepared: Prepared
    machine: str
    about: dict[str, str] = field(default_factory=dict[str, str])
    figures: dict[str, list[Measured]] = field(default_factory=dict[str, list[Measured]])
    """Trainer → each of its repeats."""
    packed: tuple[str, ...] = ()
    """The trainers that pack."""

    def rate(self, name: str) -> Spread:
        """Real tokens per second."""
        return spread([each.tokens_per_second for each in self.figures[name]])

    def memory(self, name: str) -> Spread:
        """Peak of the whole process, MB."""
        return spread([each.peak_memory_mb for each in self.figures[name]])

    def ratio(self, other: str) -> Spread:
        """Real tokens per second, ours to the other's, repeat by repeat."""
        pairs = zip(self.figures[OURS], self.figures[other], strict=True)
        return spread([ours.tokens_per_second / its.tokens_per_second for ours, its in pairs])

    def fastest(self, *, packed: bool) -> str | None:
        """Of the other trainers that pack, or that do not; None if none was measured."""
        chosen = [name for name in self.figures if name != OURS and (name in self.packed) == packed]
        return max(chosen, key=lambda name: self.rate(name)[0], default=None)

    def as_json(self) -> dict[str, object]:
        """Ratios and figures: medians with least and greatest."""
        ratios: dict[str, object] = {}
        for key, packed in (("sft_vs_trl_packed", True), ("sft_vs_trl", False)):
            name = self.fastest(packed=packed)
            if name is not None:
                found = [round(each, 3) for each in self.ratio(name)]
                ratios |= {key: found[0], f"{key}_spread": found, f"{key}_form": name}
        return {
            **ratios,
            "size": self.size,
            "machine": self.machine,
            "precision": self.prepared.precision,
            "rows": {**asdict(self.prepared), "mean": round(self.prepared.mean, 1)},
            "figures": {
                name: {
                    "tokens_per_second": [round(each, 1) for each in self.rate(name)],
                    "peak_memory_mb": [round(each, 1) for each in self.memory(name)],
                    "repeats": [run.as_json() for run in runs],
                }
                for name, runs in self.figures.items()
            },
        }
