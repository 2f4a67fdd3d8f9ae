-- include: base.lua
-- include: entries.lua
-- Note that a delivery after the first begins to be handled, before it is.
-- KEYS: work stream, begun
-- ARGV: group, entry id, consumer, delivery count
-- Returns how many handlings of this entry began before and never ended, as one does that kills its
--       worker; -1 if another worker holds the lease.
-- Deliveries are not failures: a reply of XREADGROUP or a sweep may be lost, and the count of Redis has
-- risen without any handling. The first delivery is taken for begun once a second one is handled,
-- unless give_back.lua says otherwise: so nothing has to be written before a first handling.
-- Race closed: the note is on the server before the handler runs, so a handler that kills its process
-- can't outrun it; the check of the lease and the note are one step. Safe to repeat.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return -1 end
local counts = unresolved(KEYS[2], ARGV[2], ARGV[4])
local before = #counts
counts[before + 1] = ARGV[4]
redis.call('HSET', KEYS[2], ARGV[2], table.concat(counts, ' '))
redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
return before
