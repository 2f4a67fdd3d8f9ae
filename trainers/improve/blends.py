"""Weights between two versions: a blend keeps more of the one that serves, and so of what it can
do, at the price of some of what the other has learned (Wortsman et al. 2022, WiSE-FT,
arXiv:2109.01903)."""

from __future__ import annotations

import shutil
from pathlib import Path

from loopline.trainers.core.models import WEIGHTS
from loopline.trainers.errors import UnreadableModel
from loopline.workers.atomic_files import atomic_folder


def write_blend(serving: Path, trained: Path, share: float, folder: Path) -> None:
    """Write the model serving + `share` × (trained − serving) into `folder`, with all other files
    of `trained`; nothing is done where the folder exists. Both are folders of a model with all its
    weights in one file, of the same architecture. Raises `UnreadableModel`."""
    from safetensors.torch import load_file, save_file

    if folder.exists():
        return
    files = [serving / WEIGHTS, trained / WEIGHTS]
    for file in files:
        if not file.is_file():
            raise UnreadableModel(f"{file} is missing: only whole models in one file are blended")
    before, after = map(load_file, files)
    shapes = [{name: tensor.shape for name, tensor in part.items()} for part in (before, after)]
    if shapes[0] != shapes[1]:
        raise UnreadableModel(f"{serving} and {trained} have different layers: they don't blend")
    blend = {
        # Of the precision of the trained ones: those that are shipped are rounded to fp16.
        name: before[name].to(tensor.dtype).lerp(tensor, share).contiguous()
        for name, tensor in after.items()
    }
    with atomic_folder(folder) as part:
        shutil.copytree(trained, part, dirs_exist_ok=True)
        save_file(blend, part / WEIGHTS, metadata={"format": "pt"})
