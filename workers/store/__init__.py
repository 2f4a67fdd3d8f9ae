"""The store: three tables of Parquet files, `trajectories/`, `usage/` and `rewards/`.

The recorder adds a small file per batch. A compaction replaces many of them by one file that is
sorted by run. The statistics of its row groups contain the least and the greatest run id, so that a
run is found without reading other groups. All files are named
`<shard>-<first entry>-<last entry>-<rows>.parquet`, so a reader or a recorder of any version reads
compacted files like any others.

A table is replaced as a whole: a folder with the new file and hard links to all remaining files is
exchanged with the table's folder in one file-system operation. Every process that lists a table,
even a plain query, sees each row once, before and after. A process that is killed at any point
leaves either the old folder or the new one.

Next to the tables are `compaction/`, in which the other folder is built (only the compacting
process has its lock), `samples/`, which a compaction derives from the table for training, and
`unreadable/`: complete files and entries that can't be read.
"""
