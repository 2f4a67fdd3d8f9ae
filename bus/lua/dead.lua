-- include: base.lua
-- include: entries.lua
-- include: end_run.lua
-- Move a delivery to the dead letters; if it belongs to a live run, end that run with `error`; if
-- it is a request, answer its waiters with the error.
-- KEYS: work stream, dead, run, journal, log, usage, active, trajectories, history, request,
--       ledger; if no run is to be ended, the request replaces journal, log and trajectories
-- ARGV: group, entry id, consumer, delivery count, run_id ('' if unknown), raw envelope, reason,
--       traceback, stream name, retention ms, history flag, dead-letter life ms, reply ('' if this
--       is not a request), end the run (0/1)
-- Returns 'ok' or 'lost'.
-- Race closed: the poisoned message leaves its stream and its run ends in the same step.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
local now = now_ms()
redis.call('XADD', KEYS[2], 'MINID', '~', now - ARGV[12], '*', 'stream', ARGV[9],
  'envelope', ARGV[6], 'run_id', ARGV[5], 'reason', ARGV[7], 'traceback', ARGV[8],
  'deliveries', ARGV[4], 'consumer', ARGV[3], 'entry', ARGV[2], 'ends_run', ARGV[14])
redis.call('PEXPIRE', KEYS[2], ARGV[12])
audit(ARGV[11], KEYS[9], 'event', 'dead', 'run_id', ARGV[5], 'reason', ARGV[7])
if ARGV[13] ~= '' then
  local fields = redis.call('HGETALL', KEYS[10])
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'w:' then
      local inbox = string.sub(fields[i], 3)
      redis.call('XADD', inbox, '*', 'type', 'reply', 'key', fields[i + 1], 'reply', ARGV[13])
      redis.call('PEXPIRE', inbox, INBOX_LIFE)
      redis.call('HDEL', KEYS[10], fields[i])
    end
  end
  -- The request may be made again. The offset stays: the run's log still contains the text up to
  -- there.
  redis.call('HDEL', KEYS[10], 'asked')
end
if ARGV[14] == '1' and redis.call('HGET', KEYS[3], 'state') == 'active' then
  end_run({run = KEYS[3], journal = KEYS[4], log = KEYS[5], usage = KEYS[6], active = KEYS[7],
    trajectories = KEYS[8], history = KEYS[9], ledger = KEYS[11]}, ARGV[5], 'error', '', 'dead letter: ' .. ARGV[7],
    {history = ARGV[11], retention = ARGV[10]})
end
settle(KEYS[1], ARGV[1], ARGV[2])
return 'ok'
