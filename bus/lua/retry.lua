-- include: end_run.lua
-- Put a delivery aside and try it again later.
-- KEYS: work stream, delayed set
-- ARGV: group, entry id, consumer, delivery count, delay ms, envelope with its attempt raised
-- Returns 'ok' or 'lost'.
-- Race closed: settling and scheduling are one step, so a crash can't lose or double the message.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
redis.call('ZADD', KEYS[2], now_ms() + ARGV[5], ARGV[6])
redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
settle(KEYS[1], ARGV[1], ARGV[2])
return 'ok'
