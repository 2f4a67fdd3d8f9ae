-- include: base.lua
-- include: entries.lua
-- include: waits.lua
-- Defer a step until a person has approved what it wants to do, or entered the outcome of a call
-- that must not be made twice; then it is repeated.
-- KEYS: work stream, run, active, history, request of such a call
-- ARGV: group, entry id, consumer, delivery count, run_id, guard, key of the request to approve,
--       longest wait in ms, what is to be approved (JSON with its `digest`), envelope, retention
--       ms, history flag, kind of the wait (`approval` or `effect`)
-- Returns 'ok', 'lost', 'ended' (the run has ended) or 'duplicate' (the step is committed).
-- Race closed: settling the message and waiting are one step, so a crash neither loses the step nor
-- lets two workers take it. A decision about other arguments does not count for these. A call whose
-- outcome was entered a moment ago is not waited for.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
local known = redis.call('HMGET', KEYS[2], 'state', 'step:' .. ARGV[6], 'announce')
if known[1] ~= 'active' then
  abandon(KEYS[1], ARGV[1], ARGV[2], KEYS[2])
  return 'ended'
end
settle(KEYS[1], ARGV[1], ARGV[2])
if known[2] then return 'duplicate' end
redis.call('HDEL', KEYS[2], 'approval:' .. ARGV[7], 'failure')
open_wait({run = KEYS[2], active = KEYS[3]}, ARGV[5], ARGV[6], {kind = ARGV[13], name = ARGV[7],
  ms = tonumber(ARGV[8]), stream = KEYS[1], note = ARGV[9], head = ARGV[10], tail = ''}, ARGV[11])
if ARGV[13] == 'effect' then
  local call = redis.call('HMGET', KEYS[5], 'effect', 'outcome')
  if not call[1] or call[2] then
    wake({run = KEYS[2], active = KEYS[3]}, ARGV[5], ARGV[6], read_wait(KEYS[2], ARGV[6]), '', ARGV[11])
  end
elseif known[3] == '1' then
  redis.call('ZADD', of_shard('ends'), now_ms(), ARGV[5] .. '/' .. ARGV[6])
  redis.call('PEXPIRE', of_shard('ends'), STREAM_LIFE)
end
audit(ARGV[12], KEYS[4], 'event', 'park', 'run_id', ARGV[5], 'guard', ARGV[6])
return 'ok'
