"""The `train` command with a tokenizer that is learned in a fraction of a second."""

from __future__ import annotations

from loopline.trainers import cli
from loopline.trainers.sft import training as sft

DIALOGUES = 400


def main() -> None:
    sft.TOKENIZER_DIALOGUES = DIALOGUES
    cli.main()
