-- Give a caller its turn at an endpoint with rate limits: one bucket for all workers.
-- KEYS: bucket
-- ARGV: requests and tokens per minute from the settings (0: none), tokens of this call, longest
--       wait ms, whether the caller has waited for its turn and only asks whether it is still valid
--       (0/1), requests and tokens per minute that the endpoint has reported to the caller (0:
--       none): a bucket that has expired, or was lost with its server, no longer knows them
-- Returns ms to wait until the turn, 0 for a call that is sent now; or, if that is longer than the
--       caller can wait, -1 - ms, and no turn was taken. To a caller that has waited: 0, ms for
--       which the endpoint accepts no call, which ends its turn, or -1 - ms after which it should
--       ask again.
-- Turns are assigned immediately, for a future time: callers are served in order of arrival,
-- without polling. Turns follow each other evenly, with at most a second's worth at once, and two
-- in a hundred are left out: so a provider that counts any 60 seconds never counts one call too
-- many, although calls take different times to arrive. Workers on a busy machine wake up late,
-- several at once: so the calls of each second are counted as they are sent, and a call that
-- exceeds the limit for the last 61 seconds waits.
-- Race closed: workers that each keep a part of the limit, or check and then take.
-- The server's own clock: the bucket contains only differences, and moves with a clock that jumps
-- back.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local b = redis.call('HMGET', KEYS[1], 'last', 'requests', 'tokens', 'until', 'rpm', 'tpm')
local last = tonumber(b[1] or now)
local back = now < last - 1000 and last - now or 0
local next_request, next_tokens = tonumber(b[2] or 0) - back, tonumber(b[3] or 0) - back
local blocked = tonumber(b[4] or 0) - back

-- The smaller of two limits, either of which may be absent.
local function least(a, b)
  a, b = tonumber(a or 0), tonumber(b or 0)
  if a <= 0 or b <= 0 then return math.max(a, b) end
  return math.min(a, b)
end
local rpm, tpm = least(ARGV[1], b[5] or ARGV[6]), least(ARGV[2], b[6] or ARGV[7])

-- Count a call that is sent now, and return 0; or the ms until it would no longer exceed the limit.
-- Seconds that the clock has jumped back from are not counted.
local SECONDS = 61
local function send()
  local second, names = math.floor(now / 1000), {}
  for i = 1, SECONDS do names[i] = 'sent:' .. (i - 1) end
  local bins, count, oldest, of_this = redis.call('HMGET', KEYS[1], unpack(names)), 0, second, 0
  for i = 1, SECONDS do
    local at, calls = string.match(bins[i] or '', '^(%d+):(%d+)$')
    at, calls = tonumber(at or -1), tonumber(calls or 0)
    if at > second - SECONDS and at <= second then
      count, oldest = count + calls, math.min(oldest, at)
      if at == second then of_this = calls end
    end
  end
  if rpm > 0 and count >= rpm then return (oldest + SECONDS) * 1000 - now end
  redis.call('HSET', KEYS[1], 'sent:' .. second % SECONDS, second .. ':' .. of_this + 1)
  return 0
end

if ARGV[5] == '1' then
  if blocked > now then return math.ceil(blocked - now) end
  local late = math.ceil(send())
  return late > 0 and -1 - late or 0
end
local turn = math.max(now, blocked)
if rpm > 0 then
  local interval = 60000 / (rpm * 0.98)
  turn = math.max(turn, next_request - math.max(0, 1000 - interval))
  next_request = math.max(turn, next_request) + interval
end
if tpm > 0 then
  turn = math.max(turn, next_tokens - 1000)
end
local wait = math.ceil(turn - now)
if wait <= 0 then wait = math.ceil(send()) end
if wait > tonumber(ARGV[4]) then return -1 - wait end
if tpm > 0 then next_tokens = math.max(turn, next_tokens) + ARGV[3] * 60000 / (tpm * 0.98) end
local function text(number) return string.format('%.3f', number) end
redis.call('HSET', KEYS[1], 'last', text(now), 'requests', text(next_request), 'tokens',
  text(next_tokens), 'until', text(blocked))
redis.call('PEXPIRE', KEYS[1], math.max(3600000, wait + 600000))
return wait
