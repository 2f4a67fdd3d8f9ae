-- include: entries.lua
-- Settle a delivery without effect: its run is over, or its deadline has passed.
-- KEYS: work stream, run, request
-- ARGV: group, entry id, consumer, delivery count
-- Returns 'ok' or 'lost'.
-- Race closed: a stale owner can't settle another worker's delivery; a request that is given up
-- here can be asked again at once, instead of being waited for until its key expires.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
if not abandon(KEYS[1], ARGV[1], ARGV[2], KEYS[2]) then redis.call('HDEL', KEYS[3], 'asked') end
return 'ok'
