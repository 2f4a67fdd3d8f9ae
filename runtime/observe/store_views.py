"""DuckDB over a store: views in which each row counts once, despite duplicates in the files."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopline.runtime.errors import InputError, UserError
from loopline.workers.installation import install_hint
from loopline.workers.store.files import TABLES, parquet_files

VIEWS = {
    "generations": (
        "trajectories",
        "PARTITION BY run_id, generation",
        "every end of every run",
    ),
    "trajectories": (
        "trajectories",
        "PARTITION BY run_id",
        "the newest end of each run",
    ),
    "usage": ("usage", "PARTITION BY shard, entry", "the ledger"),
    "rewards": ("rewards", "PARTITION BY shard, entry", "posted rewards"),
}
"""Source of each view: its table, the columns that identify a row, and its description."""

_LATEST = (
    "generation DESC, split_part(entry, '-', 1)::BIGINT DESC, split_part(entry, '-', 2)::BIGINT "
    "DESC"
)


QUERY_SECONDS = 20.0
_LIMITS: Mapping[str, str | int] = {"memory_limit": "512MB", "threads": 2}


@contextmanager
def bounded_queries(store: Path) -> Generator[Any]:
    """Yield an empty DuckDB for interactive queries, with two threads, 512 MB and a total of
    `QUERY_SECONDS` for all queries. Raises `UserError` without DuckDB, for unreadable files, or if
    the queries take longer.
    """
    connection = open_database(**_LIMITS)
    import duckdb

    timer = threading.Timer(QUERY_SECONDS, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield connection
    except duckdb.InterruptException:
        raise UserError(
            f"the store in {store} can't be searched within {QUERY_SECONDS:g} s",
            hint="ask for a shorter time; `runtime store compact` makes reading faster.",
        ) from None
    except duckdb.Error as error:
        words = " ".join(str(error).split())[:300]
        raise UserError(
            f"the store in {store} can't be read: {words}",
            hint="`runtime store verify` sets damaged files aside.",
        ) from error
    finally:
        timer.cancel()
        connection.close()


def connect(store: Path) -> Any:
    """Return an in-memory DuckDB with the views `trajectories`, `generations`, `usage` and
    `rewards` over the files of a store; a table without files has no view. Raises `UserError`
    without DuckDB, `InputError` for a store without files."""
    connection = open_database()
    if not any(parquet_files(store / table) for table in TABLES):
        raise InputError(f"{store} contains no files of a recorder")
    for view in VIEWS:
        add_view(connection, store, view)
    return connection


def open_database(**options: str | int) -> Any:
    """Return an empty in-memory DuckDB with these options. Raises `UserError` without DuckDB."""
    try:
        import duckdb
    except ImportError as error:
        raise UserError("DuckDB is not installed", hint=install_hint("store")) from error
    # By default, DuckDB would download extensions.
    return duckdb.connect(config={"autoinstall_known_extensions": False, **options})


def add_view(connection: Any, store: Path, view: str) -> bool:
    """Create one of `VIEWS` over the files of a store; return False if its table has no files."""
    table, partition, _ = VIEWS[view]
    if not parquet_files(store / table):
        return False
    pattern = str(store / table / "*.parquet").replace("'", "''")
    order = _LATEST if table == "trajectories" else "shard"
    connection.execute(
        f"CREATE VIEW {view} AS SELECT * FROM read_parquet('{pattern}', union_by_name = true) "
        f"QUALIFY row_number() OVER ({partition} ORDER BY {order}) = 1"
    )
    return True
