-- Read a run and its journal.
-- KEYS: run, journal
-- Returns the fields of the run (name, value, …) and its steps in order.
-- Race closed: a commit between the two reads. A transaction (MULTI) would close it too, but a
-- server whose memory is full refuses even the reads in a transaction.
return {redis.call('HGETALL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1)}
