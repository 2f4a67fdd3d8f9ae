"""What `bench engine` found, and the ratios that matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from loopline.bench.proofs.engine.workload import Measured
from loopline.bench.statistics import Spread, quantile, spread

OURS_LLAMA = "ours (llama_cpp)"
OURS_TORCH = "ours (torch)"
SERVER = "llama-cpp-python's server"
GENERATE = "generate"
CONTINUOUS = "continuous batching"


@dataclass
class Figures:
    """One peer at one number of requests in flight, over all repeats."""

    runs: list[Measured] = field(default_factory=list[Measured])

    def add(self, measured: Measured) -> None:
        self.runs.append(measured)

    @property
    def rate(self) -> Spread:
        """Tokens per second."""
        return spread([each.tokens_per_second for each in self.runs])

    def seconds(self, what: Callable[[Measured], list[float]], share: float) -> float:
        """A quantile over the requests (or tokens) of all repeats."""
        return quantile([each for run in self.runs for each in what(run)], share)

    @property
    def prompt(self) -> tuple[int, int]:
        """Prompt tokens computed and reused, over all repeats; zeros where a peer does not say."""
        timings = [each for run in self.runs for each in run.timings]
        reused = sum(each.reused for each in timings)
        return sum(each.prompt for each in timings) - reused, reused


@dataclass
class Report:
    """All figures."""

    model: str
    precision: str
    machine: str
    about: dict[str, str]
    figures: dict[int, dict[str, Figures]]
    """Requests in flight → peer → figures."""
    batched: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Seconds of llama-batched-bench and of ours, for each repeat."""

    def ratio(self, ours: str, other: str, places: int) -> Spread | None:
        """Tokens per second, ours to the other's, repeat by repeat."""
        found = self.figures.get(places, {})
        if ours not in found or other not in found:
            return None
        pairs = zip(found[ours].runs, found[other].runs, strict=True)
        return spread([a.tokens_per_second / b.tokens_per_second for a, b in pairs])

    def ratios(self) -> dict[str, Spread]:
        """By the names that the JSON has; those that were measured."""
        most = max(self.figures)
        wanted = {
            **{
                f"llama_cpp_vs_server_{places}": self.ratio(OURS_LLAMA, SERVER, places)
                for places in self.figures
            },
            **{
                f"torch_vs_{name}_{places}": self.ratio(OURS_TORCH, peer, places)
                for places in sorted({16, 64, most} & set(self.figures))
                for name, peer in (("generate", GENERATE), ("continuous", CONTINUOUS))
            },
        }
        if self.batched:
            wanted["llama_cpp_vs_batched_bench"] = spread([a / b for a, b in self.batched])
        return {name: value for name, value in wanted.items() if value is not None}

    def as_json(self) -> dict[str, object]:
        """The last line: ratios as numbers, everything else below `figures`."""
        return {
            **{name: round(value[0], 3) for name, value in self.ratios().items()},
            "model": self.model,
            "precision": self.precision,
            "figures": {
                str(places): {
                    name: {
                        "tokens_per_second": [round(each, 1) for each in peer.rate],
                        "first_token_p50": _rounded(peer.seconds(lambda m: m.first_token, 0.5)),
                        "first_token_p99": _rounded(peer.seconds(lambda m: m.first_token, 0.99)),
                        "per_token_p50": _rounded(peer.seconds(lambda m: m.per_token, 0.5)),
                        "per_token_p99": _rounded(peer.seconds(lambda m: m.per_token, 0.99)),
                        "request_p99": _rounded(peer.seconds(lambda m: m.whole, 0.99)),
                        "prompt_computed": peer.prompt[0],
                        "prompt_reused": peer.prompt[1],
                    }
                    for name, peer in peers.items()
                }
                for places, peers in self.figures.items()
            },
        }


def _rounded(seconds: float) -> float | None:
    return None if seconds != seconds else round(seconds, 5)
