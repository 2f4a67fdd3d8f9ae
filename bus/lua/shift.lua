-- include: end_run.lua
-- Tell the scripts of one shard what to add to the server's time.
-- KEYS: shift   ARGV: milliseconds
-- Returns nothing. `sweep` begins the leases of each stream anew when it sees another shift than at
-- its last look, so those looks are kept.
redis.call('HSET', KEYS[1], 'ms', ARGV[1])
redis.call('PEXPIRE', KEYS[1], STREAM_LIFE)
