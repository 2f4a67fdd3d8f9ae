-- include: entries.lua
-- Settle a delivery without effect: its run has ended, or its deadline has passed.
-- KEYS: work stream, run, request
-- ARGV: group, entry id, consumer, delivery count
-- Returns 'ok' or 'lost'.
-- Race closed: a stale owner can't settle another worker's delivery; a request that is given up
-- here can be made again at once, without waiting for its key to expire.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
if not abandon(KEYS[1], ARGV[1], ARGV[2], KEYS[2]) then redis.call('HDEL', KEYS[3], 'asked') end
return 'ok'
