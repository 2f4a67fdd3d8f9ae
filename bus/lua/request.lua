-- include: base.lua
-- include: entries.lua
-- include: requests.lua
-- Ask once: publish a request unless it was asked before, or return its stored result.
-- KEYS: request, work stream, inbox, run
-- ARGV: envelope, life ms, name by which the waiter knows the reply, guard of the step that asks
--       ("turn.branch"), the caller's consumer that reads the work stream ('' for none)
-- Returns {'done', reply}; {'waiting', the run's deadline ms, the result of `read_next`}, if it was
--       asked now, or {'waiting'}; the reply then comes to the inbox; or {'over'}: the step is
--       committed or its run has ended, or the server does not have the run.
-- Race closed: a step retried after a crash asks again while, or after, its first request runs: it
-- is paid for once. A worker that was paused asks for a step that another has committed, whose
-- replies may be gone: nothing is paid for it. A server that lost its last writes does not know a
-- run that was admitted: its work is dropped, so there would never be an answer.
local is_first = KEYS[4] == fresh_run and redis.call('EXISTS', KEYS[1]) == 0
local known, has_text = fresh, false
if not is_first then
  local before = redis.call('HMGET', KEYS[1], 'reply', 'offset')
  if before[1] then return {'done', before[1]} end
  known, has_text = redis.call('HMGET', KEYS[4], 'state', 'step:' .. ARGV[4], 'deadline'), before[2]
end
if known[1] ~= 'active' or known[2] then return {'over'} end
local result, asked = {'waiting'}, true
if is_first then
  redis.call('HSET', KEYS[1], 'w:' .. KEYS[3], ARGV[3], 'asked', now_ms())
else
  redis.call('HSET', KEYS[1], 'w:' .. KEYS[3], ARGV[3])
  asked = redis.call('HSETNX', KEYS[1], 'asked', now_ms()) == 1
end
if asked then
  redis.call('XADD', KEYS[2], '*', 'e', ARGV[1])
  renew(KEYS[2], STREAM_LIFE)
  note_request(KEYS[4], ARGV[4], KEYS[1])
  -- A caller that reads as it asks assumes that no text of this request was published before.
  result = {'waiting', known[3], read_next(KEYS[2], 'workers', has_text and '' or ARGV[5])}
end
if is_first then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  fresh.request, fresh.request_life = KEYS[1], tonumber(ARGV[2])
  return result
end
-- A mark of a paid call may have extended its life.
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return result
