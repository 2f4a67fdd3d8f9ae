-- include: effects.lua
-- include: waits.lua
-- Settle a call of unknown outcome with an operator's report.
-- KEYS: effects, request, run, active
-- ARGV: group, the reply ('' to let the call be made again), run_id, guard of the step that asked,
--       name of its wait, retention ms
-- Returns 'waiting' (the run was waiting for it, and continues), 'settled' (no run waits for it any
--       more; it is only removed from the list), 'busy' (a worker is making it) or 'missing'.
-- Race closed: two people resolve one call: the second one finds nothing. Outcome and waking are
-- one step: a command that dies in between leaves no run that waits for an outcome that has
-- arrived.
local line = redis.call('HGET', KEYS[1], KEYS[2])
if not line then return 'missing' end
if effect_is_held(line, ARGV[1]) then return 'busy' end
redis.call('HDEL', KEYS[1], KEYS[2])
local before = redis.call('HMGET', KEYS[2], 'effect', 'reply', 'unknown')
if not before[1] or before[2] or before[3] then return 'settled' end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[2], 'effect')
else
  redis.call('HSET', KEYS[2], 'outcome', ARGV[2])
end
local wait = wait_for_outcome(KEYS[3], ARGV[4], ARGV[5])
if wait then wake({run = KEYS[3], active = KEYS[4]}, ARGV[3], ARGV[4], wait, '', ARGV[6]) end
return 'waiting'
