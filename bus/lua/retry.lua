-- include: base.lua
-- include: entries.lua
-- Defer a delivery and try it again later; its live run stores what went wrong.
-- KEYS: work stream, delayed set, run
-- ARGV: group, entry id, consumer, delivery count, delay ms, envelope with its attempt incremented,
--       reason
-- Returns 'ok' or 'lost'.
-- Race closed: settling and scheduling are one step, so a crash can't lose or duplicate the
-- message.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
redis.call('ZADD', KEYS[2], now_ms() + ARGV[5], ARGV[6])
redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
if redis.call('HGET', KEYS[3], 'state') == 'active' then
  redis.call('HSET', KEYS[3], 'failure', ARGV[7])
end
settle(KEYS[1], ARGV[1], ARGV[2])
return 'ok'
