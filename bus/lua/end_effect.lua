-- include: base.lua
-- include: entries.lua
-- include: effects.lua
-- include: waits.lua
-- Record the outcome of a call that begin_effect.lua recorded, before its reply is sent.
-- KEYS: work stream, request, effects, run
-- ARGV: group, entry id, consumer, delivery count, the reply ('' if the outcome is unknown), the
--       note about the call from now on, life of the note in ms, whether the reply will be that the
--       outcome is unknown (0/1), run_id, guard of the step that asked, name of its wait
-- Returns {'ok'}; {'resolved', reply}, if the outcome was unknown here but another delivery has
--       recorded one; or {'late'}: another delivery has the call now, or its request was answered.
-- Race closed: a worker dies between this and its reply: the next holder of the request sends the
-- same reply. A worker that was paused reports its call's outcome although it has lost the lease:
-- until the caller is told that the outcome is unknown, that is the reply, and a run that waits for
-- it continues with the next sweep, because a tool worker's user may not wake it. After that, the
-- call stays listed with this outcome.
local token = ARGV[3] .. '/' .. ARGV[4] .. '/' .. ARGV[2]
local before = redis.call('HMGET', KEYS[2], 'effect', 'reply', 'outcome', 'unknown')
if before[3] and before[3] == ARGV[5] then return {'ok'} end
if before[3] and ARGV[5] == '' and not before[2] then return {'resolved', before[3]} end
local holder = holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
local entitled = holder or (before[1] == token and not before[4])
if before[1] and entitled and not before[2] and not before[3] then
  if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[2], 'outcome', ARGV[5])
    redis.call('HDEL', KEYS[3], KEYS[2])
    if wait_for_outcome(KEYS[4], ARGV[10], ARGV[11]) then
      redis.call('ZADD', of_shard('waits'), 'XX', now_ms(), ARGV[9] .. '/' .. ARGV[10])
    end
  else
    note_effect(KEYS[3], KEYS[2], before[1], KEYS[1], ARGV[6], ARGV[7])
    if ARGV[8] == '1' then redis.call('HSET', KEYS[2], 'unknown', '1') end
  end
  return {'ok'}
end
if redis.call('HEXISTS', KEYS[3], KEYS[2]) == 1 then
  note_effect(KEYS[3], KEYS[2], token, KEYS[1], ARGV[6], ARGV[7])
end
return {'late'}
