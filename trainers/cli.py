"""The `train` command."""

from __future__ import annotations

from loopline.runtime.program import add_command, program, run
from loopline.trainers.data.command import data, worlds
from loopline.trainers.distill import command as distill
from loopline.trainers.export.command import export
from loopline.trainers.glpft import command as glpft
from loopline.trainers.grpo.command import register as register_grpo
from loopline.trainers.improve.command import improve
from loopline.trainers.prompts import command as prompts
from loopline.trainers.router.command import router, watch_router
from loopline.trainers.sft import command as sft

app = program("train", "Train models and measure their skill.")
add_command(app, data, "trainers.data.options:DataOptions")
add_command(app, worlds, "trainers.data.options:WorldsOptions")
add_command(app, sft.sft, "trainers.sft.options:SftOptions", preview=sft.preview)
add_command(app, sft.evaluate, "trainers.sft.options:EvalOptions", name="eval")
add_command(app, glpft.glpft, "trainers.glpft.options:GlpftOptions", preview=glpft.preview)
add_command(
    app, prompts.prompts, "trainers.prompts.options:PromptsOptions", preview=prompts.preview
)
add_command(
    app, distill.distill, "trainers.distill.options:DistillOptions", preview=distill.preview
)
add_command(app, router, "trainers.router.options:RouterOptions")
add_command(app, watch_router, "trainers.router.options:WatchRouterOptions", name="watch-router")
add_command(app, improve, "trainers.improve.options:ImproveOptions")
add_command(app, export, "trainers.export.precision:ExportOptions")
register_grpo(app)


def main() -> None:
    """Entry point."""
    run(app)


if __name__ == "__main__":
    main()
