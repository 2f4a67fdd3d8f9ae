-- include: base.lua
-- Add or remove a schedule.
-- KEYS: schedule times, schedules
-- ARGV: name, the schedule ('' to remove it), its first tick (ms), whether it may replace another
--       one with its name (0/1), maximum number per shard
-- Returns 1; 0 if there is another one with this name, or none to remove; -1 if there are too many.
--       Safe to repeat for an addition: also 1 if the same schedule already exists.
-- Race closed: two that add one name; a sweeper that advances a schedule which is being removed.
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return redis.call('HDEL', KEYS[2], ARGV[1])
end
local known = redis.call('HGET', KEYS[2], ARGV[1])
if known == ARGV[2] then return 1 end
if known then
  if ARGV[4] == '0' then return 0 end
elseif redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then
  return -1
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
for i = 1, 2 do redis.call('PEXPIRE', KEYS[i], AGREEMENT_LIFE) end
return 1
