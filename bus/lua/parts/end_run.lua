-- include: base.lua
-- include: budgets.lua
-- include: ledger.lua
-- include: requests.lua
-- include: room.lua
-- include: run_keys.lua
-- include: turns.lua
-- end_run(k, run_id, outcome, answer, reason, opts)
--   k = {run=, journal=, log=, usage=, active=, trajectories=, history=, ledger=}: keys of one
--   shard. `opts.inbox`: the caller's own inbox; the caller notifies itself. `opts.ended`: the time
--   of the end (ms) that the caller shows to its own clients; without it, the time is now.
--   Marks the run ended, publishes its whole trajectory, notifies its client, and limits the life
--   of everything that is left, including its requests. The caller has checked that the run is
--   active. `k.steps`: its journal, if the caller has it.
--   The reason of a run that ends at its deadline includes its last error.
-- Race closed: ending and publishing are one script, so there is no ended run without a
-- trajectory and no trajectory of a run that still moves.
-- The inbox and the requests are read from the run's hash: their keys carry the same hash tag.

local function end_run(k, run_id, outcome, answer, reason, opts)
  local now = now_ms()
  local ended = opts.ended or now
  local info = redis.call('HMGET', k.run, 'run', 'notify', 'generation', 'tenant', 'failure', 'announce',
    'paid', 'held:ms', 'deadline', 'left', 'idempotency')
  if outcome == 'deadline' and info[5] then reason = reason .. '; last error: ' .. info[5] end
  redis.call('HSET', k.run, 'state', 'ended', 'outcome', outcome, 'answer', answer,
    'reason', reason, 'ended', ended)
  redis.call('ZREM', k.active, run_id)
  settle_seconds(k.run, now, {unpack(info, 8, 10)})
  leave_turn(k.active, k.run, run_id, info[4])
  local steps = k.steps or redis.call('LRANGE', k.journal, 0, -1)
  redis.call('XADD', k.trajectories, '*', 'run_id', run_id, 'run', info[1] or '',
    'steps', '[' .. table.concat(steps, ',') .. ']', 'outcome', outcome, 'answer', answer,
    'reason', reason, 'ended', ended, 'generation', info[3] or '0')
  renew(k.trajectories, STREAM_LIFE)
  redis.call('XADD', k.log, '*', 'type', 'ended', 'outcome', outcome, 'answer', answer,
    'reason', reason, 'generation', info[3] or '0')
  if info[6] == '1' then
    redis.call('ZADD', of_shard('ends'), now, run_id)
    redis.call('PEXPIRE', of_shard('ends'), STREAM_LIFE)
  end
  if info[2] and info[2] ~= '' and info[2] ~= opts.inbox then
    redis.call('XADD', info[2], '*', 'type', 'ended', 'run_id', run_id, 'outcome', outcome)
    redis.call('PEXPIRE', info[2], INBOX_LIFE)
  end
  for _, field in ipairs(redis.call('HKEYS', k.run)) do
    local kind = string.sub(field, 1, 5)
    if kind == 'asked' then
      local noted = redis.call('HGET', k.run, field)
      if outcome == 'error' then
        enter_all_marks(k, noted, info[7])
        keep_requests(noted, opts.retention)
      else
        settle_requests(k, field, noted, info[7])
      end
    elseif kind == 'wait:' then
      redis.call('ZREM', of_shard('waits'), run_id .. '/' .. string.sub(field, 6))
      -- A replay that reactivates the run sets its timer again.
      if outcome ~= 'error' then redis.call('HDEL', k.run, field) end
    elseif field == 'left' or field == 'waits' then
      redis.call('HDEL', k.run, field)
    end
  end
  for _, key in ipairs({k.run, k.journal, k.log, k.usage, run_key(k.run, 'signals')}) do
    redis.call('PEXPIRE', key, opts.retention)
  end
  keep_caller_key(info[11], opts.retention)
  give_freed()
  audit(opts.history, k.history, 'event', 'end', 'run_id', run_id, 'outcome', outcome,
    'steps', #steps, 'generation', info[3] or '0')
end
