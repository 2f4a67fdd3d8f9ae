-- Time, lives of keys and names of keys, for the scripts of one shard.

local STREAM_LIFE = 604800000
-- How long a deployment may be away beyond the end of a wait, and its run still goes on.
local AWAY_LIFE = 90 * 86400000
-- What all processes agree on outlives every wait.
local AGREEMENT_LIFE = 400 * 86400000
local INBOX_LIFE = 600000
local LONGEST_RUN = 86400000

-- A key of the shard, with the hash tag that all keys of one script call share.
local function of_shard(kind)
  return string.match(KEYS[1], '^{[^}]*}:') .. kind
end

-- The deployment's time: the server's plus the shift that corrects its jumps (bus/clock.py). Looked at
-- once: a script is one moment.
local moment
local function now_ms()
  if not moment then
    local t = redis.call('TIME')
    local shift = redis.call('HGET', of_shard('deployment'), 'shift') or 0
    moment = t[1] * 1000 + math.floor(t[2] / 1000) + shift
  end
  return moment
end

-- Whether the caller's count of the time (ms) agrees. If not, one of the two is wrong (the server's
-- clock may have jumped), so nothing may be decided by the time. 5 s are more than a
-- command usually waits for a busy server, and less than any lease of a deployment in earnest.
local function witnessed(now, count)
  return math.abs(now - tonumber(count)) <= 5000
end

local function audit(on, key, ...)
  if on == '1' then
    redis.call('XADD', key, '*', ...)
    redis.call('PEXPIRE', key, STREAM_LIFE)
  end
end
