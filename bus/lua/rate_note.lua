-- Record the limits that an endpoint has reported, and the actual usage of a call.
-- KEYS: bucket
-- ARGV: ms for which it accepts no call (0: none), its requests and tokens per minute (0: not
--       stated), the tokens per minute from the settings, tokens that were reserved for a call but
--       not used
-- Returns nothing.
-- Race closed: a longer wait that another worker was told to keep stays in force.
-- The server's own clock: the bucket is moved with a clock that jumped back, as in rate.lua, before
-- `last` marks all of it as new time.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
if ARGV[1] ~= '0' then
  local b = redis.call('HMGET', KEYS[1], 'last', 'requests', 'tokens', 'until')
  local last = tonumber(b[1] or now)
  local back = now < last - 1000 and last - now or 0
  if back > 0 then
    for n, name in ipairs({'requests', 'tokens'}) do
      if b[1 + n] then redis.call('HSET', KEYS[1], name, string.format('%.3f', b[1 + n] - back)) end
    end
  end
  local blocked = math.max(now + ARGV[1], tonumber(b[4] or 0) - back)
  redis.call('HSET', KEYS[1], 'until', string.format('%.3f', blocked), 'last', string.format('%.3f', now))
end
if ARGV[2] ~= '0' then redis.call('HSET', KEYS[1], 'rpm', ARGV[2]) end
if ARGV[3] ~= '0' then redis.call('HSET', KEYS[1], 'tpm', ARGV[3]) end
local tpm = tonumber(ARGV[4])
local learnt = tonumber(redis.call('HGET', KEYS[1], 'tpm') or 0)
if learnt > 0 and (tpm == 0 or learnt < tpm) then tpm = learnt end
local next_tokens = redis.call('HGET', KEYS[1], 'tokens')
if ARGV[5] ~= '0' and tpm > 0 and next_tokens then
  redis.call('HSET', KEYS[1], 'tokens',
    string.format('%.3f', next_tokens - ARGV[5] * 60000 / (tpm * 0.98)))
end
redis.call('PEXPIRE', KEYS[1], 3600000 + ARGV[1])
