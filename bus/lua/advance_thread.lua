-- KEYS: thread
-- ARGV: what it held when it was read ('' for nothing), what it is to hold, life in milliseconds
-- Returns 1, or 0 if it holds something else by now: nothing was changed.
-- Race closed: two callers read the same last run of a thread, and both would go on from it.
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
