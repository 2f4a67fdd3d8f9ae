-- include: base.lua
-- Record the server's time, or agree on a new shift between it and the deployment's time.
-- KEYS: clock
-- ARGV: the shift that the caller knows (ms), the shift that it wants (equal if it agrees with the
--       server), the server's time as measured (ms)
-- Returns 1, or 0 if another process has changed the shift meanwhile: measure again.
-- Race closed: many processes that notice one jump correct it once. A process that measured before
-- a jump writes nothing after it: its record would claim that the server's clock had run evenly.
local shift = redis.call('HGET', KEYS[1], 'shift') or '0'
if shift ~= ARGV[1] then return 0 end
local t = redis.call('TIME')
local raw = t[1] * 1000 + math.floor(t[2] / 1000)
if math.abs(raw - tonumber(ARGV[3])) > 5000 then return 0 end
redis.call('HSET', KEYS[1], 'shift', ARGV[2], 'last', string.format('%.0f', raw))
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
return 1
