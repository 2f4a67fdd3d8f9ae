-- include: base.lua
-- function: admit.lua
-- Admit the run of a schedule's tick, or skip it; the schedule then waits for its next tick.
-- KEYS: schedule times, schedules, then those of admit (none to skip the tick)
-- ARGV: name, the tick that the caller knows (ms), the next one (ms), the caller's count of the
--       time (ms), then those of admit
-- Returns what admit returns; {'taken'} if the schedule is at another tick by now, or gone, or the
--       tick is not due by the server's time, or that time is in doubt; {'passed'}.
-- Race closed: any number of sweepers that find one tick due: the one that advances the schedule
-- admits its run. A crash can't come between.
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due or tonumber(due) ~= tonumber(ARGV[2]) then return {'taken'} end
if not witnessed(now_ms(), ARGV[4]) then return {'taken'} end
local result = {'passed'}
if #KEYS > 2 then
  local keys, args = {}, {}
  for i = 3, #KEYS do keys[i - 2] = KEYS[i] end
  for i = 5, #ARGV do args[i - 4] = ARGV[i] end
  result = admit(keys, args)
  if result[1] ~= 'admitted' and result[1] ~= 'exists' then return result end
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
for i = 1, 2 do redis.call('PEXPIRE', KEYS[i], AGREEMENT_LIFE) end
return result
