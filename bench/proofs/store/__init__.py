"""`bench store`: how fast a run is shown and a store is read, before and after a compaction."""
