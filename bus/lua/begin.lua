-- include: base.lua
-- include: entries.lua
-- Record that the handling of a delivery after the first one starts, before it does.
-- KEYS: work stream, begun
-- ARGV: group, entry id, consumer, delivery count
-- Returns how many earlier handlings of this entry started and never ended, such as one that kills
--       its worker; -1 if another worker holds the lease.
-- Deliveries are not failures: a reply of XREADGROUP or a sweep may be lost, and then Redis's count
-- has increased without any handling. The first delivery counts as started once a second one is
-- handled, unless give_back.lua states otherwise: so nothing has to be written before a first
-- handling.
-- Race closed: the record is on the server before the handler runs, so a handler that kills its
-- process can't outrun it; the lease check and the record are one step. Safe to repeat.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return -1 end
local counts = unresolved(KEYS[2], ARGV[2], ARGV[4])
local before = #counts
counts[before + 1] = ARGV[4]
redis.call('HSET', KEYS[2], ARGV[2], table.concat(counts, ' '))
redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
return before
