-- Remove consumers that have gone: idle for long and holding nothing.
-- KEYS: stream   ARGV: group, idle ms, only this name ('' for any)
-- Returns the number removed.
-- Race closed: DELCONSUMER drops pending entries; checked and removed in one script, it can't.
-- The next read of a consumer that was only idle creates it again.
-- A stream or group that a flush has removed has no consumers.
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return 0 end
local gone = 0
for _, consumer in ipairs(consumers) do
  local c = {}
  for i = 1, #consumer, 2 do c[consumer[i]] = consumer[i + 1] end
  if c.pending == 0 and c.idle >= tonumber(ARGV[2]) and (ARGV[3] == '' or ARGV[3] == c.name) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], c.name)
    gone = gone + 1
  end
end
return gone
