"""Prompts of recorded runs, by their hash, alongside the tables: `<store>/prompts/<hash>.md`.

A run's record names each prompt by its hash. What the hash stands for is on the bus for some weeks,
and in the package for as long as nobody changes it; here it stays with the runs.
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
"""Prompts that are not looked for again in the folder."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class PromptShelf:
    """Writes each prompt once."""

    def __init__(self, bus: Bus, store: Path) -> None:
        self._bus = bus
        self._folder = store / "prompts"
        self._seen: Remembered[str, None] = Remembered(MAX_REMEMBERED)

    def before(self, write: BatchHandler) -> BatchHandler:
        """A writer of `trajectories` that keeps the prompts of a batch first."""

        async def written(entries: Sequence[Entry]) -> None:
            await self.keep(entries)
            await write(entries)

        return written

    async def keep(self, entries: Sequence[Entry]) -> None:
        """The prompts of the runs in these entries of `trajectories`, as far as the bus has them
        and they are not here yet. Raises OSError as `Table.write` does."""
        digests = {digest for _, fields in entries for digest in _shared_prompts(fields)}
        for digest in sorted(digests):
            if digest in self._seen:
                continue
            path = self._folder / f"{digest}.md"
            if not path.exists():
                text = await read_content(self._bus, digest)
                if text is None:
                    # Of a run that an earlier version admitted; it may come with a later one.
                    log.debug("prompt not on the bus", digest=digest)
                    continue
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    write_atomic(path, text)
                except OSError as error:
                    raise unwritable(self._folder, error) from error
            self._seen.set(digest, None)


def _shared_prompts(fields: Mapping[bytes, bytes]) -> list[str]:
    """Hashes of the prompts that a run does not bring itself; none of what is not a run, which the
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
    """None where the store has none, or another text under its name."""
    if not _is_digest(digest):
        return None
    try:
        body = (store / "prompts" / f"{digest}.md").read_bytes()
    except OSError:
        return None
    return body.decode() if hashlib.sha256(body).hexdigest() == digest else None
