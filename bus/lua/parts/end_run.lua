-- include: base.lua
-- include: budgets.lua
-- include: ledger.lua
-- include: requests.lua
-- include: room.lua
-- include: run_keys.lua
-- include: turns.lua
-- include: waits.lua
-- end_run(k, run_id, outcome, answer, reason, opts)
--   k = {run=, journal=, log=, usage=, active=, trajectories=, history=, ledger=}: keys of one
--   shard. `opts.inbox`: the caller's own inbox, which the caller tells itself.
--   Marks the run ended, publishes its whole trajectory, tells its client, and bounds the life of
--   everything that is left, its requests included. The caller has checked that the run is active.
--   The reason of a run that ends at its deadline includes its last error.
-- Race closed: ending and publishing are one script, so there is no ended run without a
-- trajectory and no trajectory of a run that still moves.
-- The inbox and the requests are read from the run's hash: their keys carry the same hash tag.

local function end_run(k, run_id, outcome, answer, reason, opts)
  local now = now_ms()
  local failure = redis.call('HGET', k.run, 'failure')
  if outcome == 'deadline' and failure then reason = reason .. '; last error: ' .. failure end
  redis.call('HSET', k.run, 'state', 'ended', 'outcome', outcome, 'answer', answer,
    'reason', reason, 'ended', now)
  redis.call('ZREM', k.active, run_id)
  settle_seconds(k.run, now)
  local info = redis.call('HMGET', k.run, 'run', 'notify', 'generation', 'tenant')
  leave_turn(k.active, k.run, run_id, info[4])
  local steps = redis.call('LRANGE', k.journal, 0, -1)
  redis.call('XADD', k.trajectories, '*', 'run_id', run_id, 'run', info[1] or '',
    'steps', '[' .. table.concat(steps, ',') .. ']', 'outcome', outcome, 'answer', answer,
    'reason', reason, 'ended', now, 'generation', info[3] or '0')
  redis.call('PEXPIRE', k.trajectories, STREAM_LIFE)
  redis.call('XADD', k.log, '*', 'type', 'ended', 'outcome', outcome, 'answer', answer,
    'reason', reason, 'generation', info[3] or '0')
  if redis.call('HGET', k.run, 'announce') == '1' then
    redis.call('ZADD', of_shard('ends'), now, run_id)
    redis.call('PEXPIRE', of_shard('ends'), STREAM_LIFE)
  end
  if info[2] and info[2] ~= '' and info[2] ~= opts.inbox then
    redis.call('XADD', info[2], '*', 'type', 'ended', 'run_id', run_id, 'outcome', outcome)
    redis.call('PEXPIRE', info[2], INBOX_LIFE)
  end
  for _, field in ipairs(redis.call('HKEYS', k.run)) do
    if string.sub(field, 1, 6) == 'asked:' then
      if outcome == 'error' then
        local noted = redis.call('HGET', k.run, field)
        enter_all_marks(k, noted)
        keep_requests(noted, opts.retention)
      else
        settle_requests(k, field)
      end
    end
  end
  for _, guard in ipairs(open_waits(k.run)) do
    redis.call('ZREM', of_shard('waits'), run_id .. '/' .. guard)
    -- A replay that wakes the run sets its timer again.
    if outcome ~= 'error' then redis.call('HDEL', k.run, 'wait:' .. guard) end
  end
  redis.call('HDEL', k.run, 'left', 'waits')
  for _, key in ipairs({k.run, k.journal, k.log, k.usage, run_key(k.run, 'signals')}) do
    redis.call('PEXPIRE', key, opts.retention)
  end
  give_freed()
  audit(opts.history, k.history, 'event', 'end', 'run_id', run_id, 'outcome', outcome,
    'steps', #steps, 'generation', info[3] or '0')
end
