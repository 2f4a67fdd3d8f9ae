"""The `bench` command."""

from __future__ import annotations

from loopline.bench.commands import register_all
from loopline.runtime.program import program, run

app = program("bench", "Measure accuracy, cost and latency of workflows.")
register_all(app)


def main() -> None:
    """Entry point."""
    run(app)


if __name__ == "__main__":
    main()
