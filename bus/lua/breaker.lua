-- The circuit breaker of one endpoint, shared by all workers: closed, open, or probed by one of
-- them.
-- KEYS: breaker
-- ARGV: the caller's action (`ask`, `answered`, `failed`, `renew`, `release`), failures in a row
--       that open the breaker, ms for which it stays open, the caller's token, ms for which a probe
--       is valid without being renewed, whether the request was sent although the breaker was open
--       (0/1)
-- Returns {'closed', 'open' or 'probe' (the prober has the caller's token), failures in a row, ms
--       until a probe may be sent}. `ask` of an open breaker whose time is up makes the caller the
--       prober, if there is none. Only an answer to the prober closes the breaker, or one to a
--       request that was sent although it was open: requests that were sent before it opened show
--       nothing new.
-- Race closed: many workers that all retry an endpoint at the same moment; a prober that dies,
-- whose claim expires; a prober that was paused, and whose answer arrives while another one probes.
-- The server's own clock: a time that is further ahead than any that is ever set is from before a
-- jump.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local most, open_ms, hold_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local b = redis.call('HMGET', KEYS[1], 'failures', 'until', 'prober', 'held')
local failures, opens_until = tonumber(b[1] or 0), b[2] and math.min(b[2], now + open_ms)
local held = b[3] and math.min(b[4] or 0, now + hold_ms) or 0
local probes = b[3] == ARGV[4]

local function answer()
  if not opens_until then return {'closed', failures, 0} end
  if probes then return {'probe', failures, 0} end
  return {'open', failures, math.max(opens_until, held) - now}
end
local function digits(number) return string.format('%.0f', number) end
local function keep() redis.call('PEXPIRE', KEYS[1], open_ms + hold_ms + 3600000) end
local function open()
  opens_until, held, probes = now + open_ms, 0, false
  redis.call('HSET', KEYS[1], 'until', digits(opens_until))
  redis.call('HDEL', KEYS[1], 'prober', 'held')
end

if ARGV[1] == 'ask' then
  if opens_until and now >= opens_until and (held <= now or probes) then
    probes = true
    redis.call('HSET', KEYS[1], 'prober', ARGV[4], 'held', digits(now + hold_ms))
    keep()
  end
elseif ARGV[1] == 'renew' then
  if probes then
    redis.call('HSET', KEYS[1], 'held', digits(now + hold_ms))
    keep()
  end
elseif ARGV[1] == 'release' then
  if probes then
    probes, held = false, 0
    redis.call('HDEL', KEYS[1], 'prober', 'held')
  end
elseif ARGV[1] == 'answered' then
  if not opens_until or probes or ARGV[6] == '1' then
    failures, opens_until = 0, nil
    redis.call('DEL', KEYS[1])
  end
elseif ARGV[1] == 'failed' then
  failures = redis.call('HINCRBY', KEYS[1], 'failures', 1)
  if opens_until and probes or not opens_until and failures >= most then open() end
  keep()
end
return answer()
