"""Rows of token ids: the data of every supervised training, from any source.

Rows of recorded runs are kept in the training's own folder: otherwise it could not be resumed
exactly. Later runs belong to the next training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from loopline.trainers.data.datasets import require_free
from loopline.trainers.errors import UnreadableData
from loopline.workers.atomic_files import atomic_folder

FILE = "rows.parquet"


@dataclass(frozen=True)
class TokenRow:
    """One example; `learned` is true for each id that the model is to write."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]


@dataclass(frozen=True)
class RecordedRow:
    """A row of recorded ids, which were never converted to text in between."""

    instruction_id: str
    """Id that all rows of one instruction share."""
    policy: str
    """Policy that wrote the learned ids."""
    row: TokenRow
    agent: str = ""
    """Agent whose conversation it is; empty if it was not recorded."""


@dataclass(frozen=True)
class RecordedRows:
    """All rows of one training."""

    rows: tuple[RecordedRow, ...]

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the rows in order."""
        digest = hashlib.sha256()
        for recorded in self.rows:
            line: list[object] = [recorded.instruction_id, recorded.policy, recorded.row.ids]
            # Rows of folders that were written without agents keep their earlier hash.
            line += [recorded.agent] if recorded.agent else []
            digest.update(f"{json.dumps([*line, recorded.row.learned])}\n".encode())
        return digest.hexdigest()

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies that wrote the rows, sorted."""
        return tuple(sorted({recorded.policy for recorded in self.rows}))

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents whose conversations the rows are, sorted."""
        return tuple(sorted({recorded.agent for recorded in self.rows if recorded.agent}))

    def write(self, folder: Path) -> None:
        """Write a new folder, complete or not at all. Raises `UnreadableData` if it exists, OSError
        if the disk refuses."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        require_free(folder)
        schema = pa.schema(
            [
                ("instruction_id", pa.string()),
                ("policy", pa.string()),
                ("agent", pa.string()),
                ("ids", pa.list_(pa.int32())),
                ("learned", pa.list_(pa.bool_())),
            ],
            metadata={"sha256": self.sha256},
        )
        with atomic_folder(folder) as part:
            table = pa.Table.from_pylist([*self._columns()], schema=schema)
            pq.write_table(table, part / FILE, compression="zstd")

    def _columns(self) -> Iterator[dict[str, Any]]:
        for recorded in self.rows:
            yield {
                "instruction_id": recorded.instruction_id,
                "policy": recorded.policy,
                "agent": recorded.agent,
                "ids": recorded.row.ids,
                "learned": recorded.row.learned,
            }

    @classmethod
    def read(cls, folder: Path) -> RecordedRows:
        """Read the rows of a folder. Raises `UnreadableData` for rows that have changed since they
        were written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table: Any = pq.read_table(folder / FILE)
            listed: list[dict[str, Any]] = table.to_pylist()
            written = (table.schema.metadata or {}).get(b"sha256", b"").decode()
            rows = cls(
                tuple(
                    RecordedRow(
                        row["instruction_id"],
                        row["policy"],
                        TokenRow(tuple(row["ids"]), tuple(row["learned"])),
                        row.get("agent") or "",
                    )
                    for row in listed
                )
            )
        except (OSError, KeyError, TypeError, pa.ArrowException) as error:
            raise UnreadableData(
                f"{folder / FILE} is damaged: {error}; --restart reads the store again"
            ) from error
        if rows.sha256 != written:
            raise UnreadableData(
                f"{folder / FILE} is damaged: its rows have the hash {rows.sha256[:12]}, the file "
                f"says {written[:12]}; --restart reads the store again"
            )
        return rows
