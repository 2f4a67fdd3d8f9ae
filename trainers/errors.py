"""What can go wrong in a training command, said so that the user knows what to do."""

from __future__ import annotations

from loopline.runtime.errors import MendableError


class TrainingError(MendableError):
    """A training command can't do what its options ask."""


class UnknownModel(TrainingError):
    """A name for which there is no recipe."""

    exit_code = 2


class CorruptCheckpoint(TrainingError):
    """A checkpoint that cannot be continued."""

    exit_code = 3


class NotEnoughDisk(TrainingError):
    """The output folder's disk cannot hold the run."""

    exit_code = 4


class UnreadableModel(TrainingError):
    """A model folder without usable weights or tokenizer."""

    exit_code = 5


class UnreadableData(TrainingError):
    """Training data that are not there, or not where they were looked for."""

    exit_code = 6
