"""Prompts of recorded runs, by their hash, next to the tables: `<store>/prompts/<hash>.md`.

A run's record refers to each prompt by its hash. The prompt's text is on the bus for some weeks,
and in the package until it is changed there; here it is kept with the runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import structlog

from loopline.bus import Bus, read_content
from loopline.bus.bounded import Remembered
from loopline.bus.log_consumer import BatchHandler, Entry
from loopline.workers.atomic_files import write_atomic
from loopline.workers.store.files import unwritable

log = structlog.get_logger("loopline.workers.store.prompts")

MAX_REMEMBERED = 4_096
"""Number of prompts that are remembered as stored."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class PromptShelf:
    """Writes each prompt once."""

    def __init__(self, bus: Bus, store: Path) -> None:
        self._bus = bus
        self._folder = store / "prompts"
        self._seen: Remembered[str, None] = Remembered(MAX_REMEMBERED)

    def before(self, write: BatchHandler) -> BatchHandler:
        """A writer of `trajectories` that first stores the prompts of a batch."""

        async def written(entries: Sequence[Entry]) -> None:
            await self.keep(entries)
            await write(entries)

        return written

    async def keep(self, entries: Sequence[Entry]) -> None:
        """Store the prompts of the runs in these entries of `trajectories`, if the bus has them and
        they are not stored yet. Raises OSError as `Table.write` does."""
        digests = {digest for _, fields in entries for digest in _shared_prompts(fields)}
        for digest in sorted(digests):
            if digest in self._seen:
                continue
            path = self._folder / f"{digest}.md"
            if not path.exists():
                text = await read_content(self._bus, digest)
                if text is None:
                    # The run was admitted by an earlier version; a later run may bring the prompt.
                    log.debug("prompt not on the bus", digest=digest)
                    continue
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    write_atomic(path, text)
                except OSError as error:
                    raise unwritable(self._folder, error) from error
            self._seen.set(digest, None)


def _shared_prompts(fields: Mapping[bytes, bytes]) -> list[str]:
    """Hashes of the prompts that a run does not contain itself; empty for an invalid run, which the
    table sets aside."""
    try:
        run = orjson.loads(fields[b"run"])
        files, prompts = run.get("prompt_files", {}), run["prompts"].items()
        return [digest for file, digest in prompts if file not in files and _is_digest(digest)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def read_stored_prompt(store: Path, digest: str) -> str | None:
    """The text of a stored prompt; None if it is missing or has been changed."""
    if not _is_digest(digest):
        return None
    try:
        body = (store / "prompts" / f"{digest}.md").read_bytes()
    except OSError:
        return None
    return body.decode() if hashlib.sha256(body).hexdigest() == digest else None
