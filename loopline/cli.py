"""The `loopline` command: `runtime`'s commands, `improve`, and the groups `bench` and `train`."""

from __future__ import annotations

from loopline.bench.cli import app as bench
from loopline.runtime.commands import COMMANDS
from loopline.runtime.program import add_command, program, run
from loopline.trainers.cli import app as train
from loopline.trainers.improve.command import improve

app = program(
    "loopline", "Run agents on small models, measure them, and train the models on what they did."
)
for register in COMMANDS:
    register(app)
add_command(app, improve, "trainers.improve.options:ImproveOptions")
app.add_typer(bench, name="bench")
app.add_typer(train, name="train")


def main() -> None:
    """Entry point."""
    run(app)


if __name__ == "__main__":
    main()
