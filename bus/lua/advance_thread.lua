-- KEYS: thread
-- ARGV: its value when it was read ('' for none), its new value, life in milliseconds
-- Returns 1, or 0 if the value has changed meanwhile: nothing was changed.
-- Race closed: two callers read the same last run of a thread, and both want to continue it.
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
