-- include: end_run.lua
-- What became of a call that begin_effect.lua wrote down, before its reply is given.
-- KEYS: work stream, request, effects
-- ARGV: group, entry id, consumer, delivery count, the reply ('' if nobody knows the outcome), what
--       is written down of the call from now on, life of that in ms
-- Returns 'ok'; or 'late': another delivery has the call now, or its request was answered.
-- Race closed: a worker dies between this and its reply: whoever takes the request over gives the
-- same one. A worker that was paused says what became of its call though it has lost the lease: where
-- its request has no reply yet, that is the reply; where it has, the call stays listed with it.
local token = ARGV[3] .. '/' .. ARGV[4] .. '/' .. ARGV[2]
local before = redis.call('HMGET', KEYS[2], 'effect', 'reply', 'outcome')
if before[3] and before[3] == ARGV[5] then return 'ok' end
local mine = before[1] and (before[1] == token or holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]))
if mine and not before[2] and not before[3] then
  if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[2], 'outcome', ARGV[5])
    redis.call('HDEL', KEYS[3], KEYS[2])
  else
    note_effect(KEYS[3], KEYS[2], before[1], KEYS[1], ARGV[6], ARGV[7])
  end
  return 'ok'
end
if redis.call('HEXISTS', KEYS[3], KEYS[2]) == 1 then
  note_effect(KEYS[3], KEYS[2], token, KEYS[1], ARGV[6], ARGV[7])
end
return 'late'
