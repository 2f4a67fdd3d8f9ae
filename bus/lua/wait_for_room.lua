-- include: base.lua
-- include: entries.lua
-- include: budgets.lua
-- include: room.lua
-- Defer a delivery whose call has no room in a budget while other calls are in progress. The script
-- that ends one of them brings it back; after a delay it comes back in any case, because a limit
-- may have been raised, or a new day may have started.
-- KEYS: work stream, delayed set, run, request
-- ARGV: group, entry id, consumer, delivery count, delay ms, its envelope, reason, guard of the
--       step that asked ("turn.branch"), the call's maximum tokens and micro-dollars (negative: its
--       price is unknown)
-- Returns 'ok' or 'lost'.
-- Race closed: a call that ends between the refusal and this script gives its room to no waiting
-- call, so this script checks for room once more.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
local tokens, micro = tonumber(ARGV[9]), tonumber(ARGV[10])
local counts = promise(KEYS[3], ARGV[8], KEYS[4], tokens, micro)
if counts then
  local now = now_ms()
  local due = now + ARGV[5]
  while #redis.call('ZRANGE', KEYS[2], due, due, 'BYSCORE', 'LIMIT', 0, 1) > 0 do due = due + 1 end
  redis.call('ZADD', KEYS[2], due, ARGV[6])
  redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
  redis.call('ZREMRANGEBYSCORE', room_of(counts), '-inf', now)
  add_waiting(counts, due, table.concat({whole(due), whole(tokens), whole(micro), ARGV[8], KEYS[3],
    KEYS[4], KEYS[1]}, '\n'))
  redis.call('HSET', KEYS[3], 'failure', ARGV[7])
else
  redis.call('XADD', KEYS[1], '*', 'e', ARGV[6])
  redis.call('PEXPIRE', KEYS[1], STREAM_LIFE)
end
settle(KEYS[1], ARGV[1], ARGV[2])
return 'ok'
