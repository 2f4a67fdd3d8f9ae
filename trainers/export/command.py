"""`train export`: writes a model or an adapter as one GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from loopline.trainers.errors import TrainingError

if TYPE_CHECKING:
    from loopline.trainers.export.precision import ExportOptions


def export(options: ExportOptions) -> None:
    """Write a model or an adapter into one GGUF file. A model comes with its tokenizer and chat
    template."""
    from loopline.trainers.export.gguf import export_gguf, export_gguf_adapter
    from loopline.workers.engines.local.model_files import local_folder
    from loopline.workers.engines.protocol import EngineError

    gguf, base = options.gguf, options.base
    try:
        folder = local_folder(options.model)
        base_folder = None if base is None else local_folder(base)
    except EngineError as error:
        raise TrainingError(str(error)) from error
    if gguf.is_dir():
        raise TrainingError(f"--gguf {gguf} is a folder: name the file to write")
    if (folder / "adapter_config.json").is_file():
        if base_folder is None:
            raise TrainingError(f"{folder} is an adapter: name its model with --base")
        export_gguf_adapter(folder, base_folder, gguf)
    else:
        export_gguf(folder, gguf, options.precision)
    typer.echo(f"{gguf}: {gguf.stat().st_size / 1e6:.1f} MB")
