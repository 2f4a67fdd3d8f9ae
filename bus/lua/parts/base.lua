-- Time, lives of keys and names of keys, for the scripts of one shard.

local STREAM_LIFE = 604800000
-- How long a deployment may be down after the end of a wait, so that its run still continues.
local AWAY_LIFE = 90 * 86400000
-- The agreement of all processes outlives every wait.
local AGREEMENT_LIFE = 400 * 86400000
local INBOX_LIFE = 600000
local LONGEST_RUN = 86400000

-- A key of the shard, with the hash tag that all keys of one script call share.
local function of_shard(kind)
  return string.match(KEYS[1], '^{[^}]*}:') .. kind
end

-- The deployment's time: the server's plus the shift that corrects its jumps (bus/clock.py). Read
-- once, because a script is one moment.
local moment, agreed
local function agreement()
  if not agreed then
    local found = redis.call('HMGET', of_shard('deployment'), 'shift', 'epoch')
    agreed = {shift = found[1] or 0, epoch = found[2]}
  end
  return agreed
end

local function now_ms()
  if not moment then
    local t = redis.call('TIME')
    moment = t[1] * 1000 + math.floor(t[2] / 1000) + agreement().shift
  end
  return moment
end

-- Renew the life of a constantly written key, about once an hour: a check costs a third of a
-- renewal, which is also written to the append-only file. Returns whether the life was renewed.
local RENEWED_FOR = 3600000
local function renew(key, life)
  if redis.call('PTTL', key) > life - RENEWED_FOR then return false end
  redis.call('PEXPIRE', key, life)
  return true
end

-- A run that this same call has admitted. No other client has seen it, so later scripts in the same
-- call need not read it: its `state`, the time of its committed step (none), its `deadline`; `life`
-- of its key, and the `request` that was asked for it in this call.
local fresh_run, fresh

-- Whether the caller's count of the time (ms) agrees. If not, one of the two is wrong (the server's
-- clock may have jumped), so nothing may be decided based on the time. 5 s are more than a command
-- usually waits for a busy server, and less than any lease of a real deployment.
local function witnessed(now, count)
  return math.abs(now - tonumber(count)) <= 5000
end

local function audit(on, key, ...)
  if on == '1' then
    redis.call('XADD', key, '*', ...)
    redis.call('PEXPIRE', key, STREAM_LIFE)
  end
end
