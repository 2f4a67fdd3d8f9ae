"""Errors of training commands, with messages that tell the user what to do."""

from __future__ import annotations

from loopline.runtime.errors import FixableError


class TrainingError(FixableError):
    """A training command can't do what its options request."""


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
    """Training data that do not exist, or not in the expected place."""

    exit_code = 6
