"""The store: three tables of Parquet files, `trajectories/`, `usage/` and `rewards/`.

The recorder adds a small file per batch. A compaction replaces many of them by one, sorted by run,
whose row groups carry the least and the greatest run id, so that a run is found without reading the
others. Every file has the same form of name, `<shard>-<first entry>-<last entry>-<rows>.parquet`,
so that a reader or a recorder of any version reads compacted files as it reads others.

A table is replaced as a whole: a folder with the new file and hard links to all that stay is
exchanged with the table's folder in one step of the file system. Anyone who lists a table, a plain
query included, sees each row once, before and after, and a process that is killed at any line
leaves either the old folder or the new one.

Next to the tables stand `compaction/`, in which the other folder is made (its lock is held by the
only process that compacts), `samples/`, which a compaction derives from the table for trainings,
and `unreadable/`: files and entries that can't be read, kept whole.
"""
