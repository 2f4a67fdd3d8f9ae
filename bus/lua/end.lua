#!lua flags=allow-oom
-- include: base.lua
-- include: end_run.lua
-- End one run from outside: its user cancels it, or its deadline has passed.
-- KEYS: run, journal, log, usage, active, trajectories, history, ledger
-- ARGV: run_id, outcome, reason, retention ms, history flag, only if the deadline has passed (0/1),
--       the caller's count of the time (ms)
-- Returns 'ended', 'already' (it has ended), 'missing', or 'alive' (deadline not reached, or the
--       time is in doubt).
-- Also if the server's memory is full (allow-oom), because ending a run frees memory.
-- Race closed: a cancel and the last commit at the same time: one of them ends the run.
local state = redis.call('HMGET', KEYS[1], 'state', 'deadline')
if not state[1] then
  redis.call('ZREM', KEYS[5], ARGV[1])
  return 'missing'
end
if state[1] ~= 'active' then return 'already' end
if ARGV[6] == '1' then
  local now = now_ms()
  if now < tonumber(state[2]) or not witnessed(now, ARGV[7]) then return 'alive' end
end
end_run({run = KEYS[1], journal = KEYS[2], log = KEYS[3], usage = KEYS[4], active = KEYS[5],
  trajectories = KEYS[6], history = KEYS[7], ledger = KEYS[8]}, ARGV[1], ARGV[2], '', ARGV[3],
  {history = ARGV[5], retention = ARGV[4]})
return 'ended'
