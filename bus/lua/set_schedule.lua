-- include: base.lua
-- Add a schedule, or take one away.
-- KEYS: schedule times, schedules
-- ARGV: name, what it is ('' to take it away), its first tick (ms), whether it may stand in place of
--       another of its name (0/1), how many a shard may have
-- Returns 1; 0 where there is another of the name, or none to take away; -1 where there are too many.
-- Safe to repeat for what is added: 1 as well where this very schedule is there.
-- Race closed: two that add one name; a sweeper that moves a schedule on which is being taken away.
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
