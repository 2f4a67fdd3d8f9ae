-- include: base.lua
-- include: entries.lua
-- include: budgets.lua
-- include: requests.lua
-- include: room.lua
-- include: waits.lua
-- include: end_run.lua
-- The step commit, for a batch of independent deliveries of one shard. Each is all or nothing.
-- KEYS: active, trajectories, history, ledger, then per commit:
--       work stream, run, journal, log, usage, one work stream per published message, the
--       continuation's work stream if it fans out, and the work stream of what follows a wait
-- ARGV: number of commits, history flag, retention ms, group, the caller's own inbox (the caller
--       notifies itself of ends), then per commit:
--       entry id, consumer, delivery count, run_id, guard ("turn.branch"), step JSON, tokens,
--       micro-dollars, number of published messages, their envelopes…, join to open ('' for none),
--       [branches, continuation envelope], join to arrive at ('' for none), signal to wait for (''
--       for none), [guard of what follows, longest wait in ms, note, its envelope in two parts],
--       outcome ('' if the run continues), [answer, reason, time of the end by the caller's count
--       in ms]
-- Returns one word per commit: 'ok', 'already' (the same commit was applied before: a retry after a
--       broken connection), 'lost' (another worker holds the lease: nothing changed), 'ended' (the
--       run has ended: the message was only settled, or kept for a replay), 'duplicate' (the step
--       is in the journal: the message was only settled), 'budget' (committed, and the run ended
--       because its budget is used up), 'later' (committed, and the run ended at another time than
--       the caller's: an outage delayed the commit, or the caller's clock is wrong).
-- Race closed: a worker that was paused past its lease wakes up and commits; a crash between
-- journal, hand-off and acknowledgement; two branches that arrive at a join at the same time; a
-- signal that comes at the same time as the wait for it.
local active, trajectories, history, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local opts = {history = ARGV[2], retention = ARGV[3], inbox = ARGV[5]}
local group = ARGV[4]
local ki, ai = 5, 6
local results = {}
local kept = {}

-- A stream's life is renewed once per batch.
local function publish(target, envelope)
  redis.call('XADD', target, '*', 'e', envelope)
  if not kept[target] then
    redis.call('PEXPIRE', target, STREAM_LIFE)
    kept[target] = true
  end
end

for n = 1, tonumber(ARGV[1]) do
  local stream = KEYS[ki]
  local k = {run = KEYS[ki + 1], journal = KEYS[ki + 2], log = KEYS[ki + 3], usage = KEYS[ki + 4],
    active = active, trajectories = trajectories, history = history, ledger = ledger}
  local first_target = ki + 5
  local id, consumer, count, run_id, guard, step = unpack(ARGV, ai, ai + 5)
  local tokens, micro, published = ARGV[ai + 6], ARGV[ai + 7], tonumber(ARGV[ai + 8])
  local first_envelope = ai + 9
  ki = first_target + published
  ai = first_envelope + published
  local open, branches, continuation, continuation_stream = ARGV[ai], nil, nil, nil
  ai = ai + 1
  if open ~= '' then
    branches, continuation, continuation_stream = ARGV[ai], ARGV[ai + 1], KEYS[ki]
    ai = ai + 2
    ki = ki + 1
  end
  local arrive, signal, wait = ARGV[ai], ARGV[ai + 1], nil
  ai = ai + 2
  if signal ~= '' then
    wait = {kind = 'signal', name = signal, guard = ARGV[ai], ms = tonumber(ARGV[ai + 1]),
      note = ARGV[ai + 2], head = ARGV[ai + 3], tail = ARGV[ai + 4], stream = KEYS[ki]}
    ai = ai + 5
    ki = ki + 1
  end
  local outcome, answer, reason, ended = ARGV[ai], '', '', nil
  ai = ai + 1
  if outcome ~= '' then
    answer, reason, ended = ARGV[ai], ARGV[ai + 1], tonumber(ARGV[ai + 2])
    ai = ai + 3
  end

  local token = consumer .. '/' .. count .. '/' .. id
  local field = 'step:' .. guard
  local held = holds(stream, group, id, consumer, count)
  local state, asked, paid
  if held then
    state, asked, paid = unpack(redis.call('HMGET', k.run, 'state', 'asked:' .. guard, 'paid'))
  end
  if not held then
    if redis.call('HGET', k.run, field) == token then
      results[n] = 'already'
    else
      results[n] = 'lost'
      audit(opts.history, history, 'event', 'stale', 'run_id', run_id, 'guard', guard,
        'token', token, 'stream', stream)
    end
  elseif state ~= 'active' then
    abandon(stream, group, id, k.run)
    results[n] = 'ended'
  elseif redis.call('HSETNX', k.run, field, token) == 0 then
    settle(stream, group, id)
    results[n] = 'duplicate'
    audit(opts.history, history, 'event', 'duplicate', 'run_id', run_id, 'guard', guard,
      'token', token, 'stream', stream)
  else
    results[n] = 'ok'
    local length = redis.call('RPUSH', k.journal, step)
    if length == 1 then k.steps = {step} end
    audit(opts.history, history, 'event', 'commit', 'run_id', run_id, 'guard', guard,
      'token', token, 'index', length, 'stream', stream)
    settle_requests(k, 'asked:' .. guard, asked, paid)
    redis.call('XADD', k.log, '*', 'type', 'step', 'guard', guard, 'index', length - 1)
    if tokens ~= '0' or micro ~= '0' then
      local tokens_limit, micro_limit = unpack(terms_of(k.run), 3, 4)
      local used_tokens = redis.call('HINCRBY', k.run, 'tokens', tokens)
      local counts_micro = micro ~= '0' or micro_limit ~= '0'
      local used_micro = counts_micro and redis.call('HINCRBY', k.run, 'micro', micro)
      local over_tokens = tokens_limit ~= '0' and used_tokens > tonumber(tokens_limit)
      local over_micro = micro_limit ~= '0' and used_micro > tonumber(micro_limit)
      if outcome == '' and (over_tokens or over_micro) then
        outcome, results[n] = 'budget', 'budget'
        reason = over_tokens and ('used ' .. used_tokens .. ' tokens of ' .. tokens_limit)
          or ('used ' .. used_micro .. ' micro-dollars of ' .. micro_limit)
      end
    end
    if outcome ~= '' then
      if ended and not witnessed(now_ms(), ended) then ended, results[n] = nil, 'later' end
      opts.ended = ended
      end_run(k, run_id, outcome, answer, reason, opts)
    else
      local life
      if length == 1 then
        life = redis.call('PTTL', k.run)
        redis.call('PEXPIRE', k.journal, life)
      end
      if redis.call('XLEN', k.log) == 1 then  -- not the journal's length: a fork inherits steps
        redis.call('PEXPIRE', k.log, life or redis.call('PTTL', k.run))
      end
      redis.call('HDEL', k.run, 'failure')  -- the run makes progress
      if open ~= '' then
        redis.call('HSET', k.run, 'join:' .. open, branches,
          'then:' .. open, continuation_stream .. '\n' .. continuation)
      end
      for i = 0, published - 1 do
        publish(KEYS[first_target + i], ARGV[first_envelope + i])
      end
      if arrive ~= '' and redis.call('HINCRBY', k.run, 'join:' .. arrive, -1) == 0 then
        local stored = redis.call('HGET', k.run, 'then:' .. arrive)
        local cut = string.find(stored, '\n', 1, true)
        local target = string.sub(stored, 1, cut - 1)
        publish(target, string.sub(stored, cut + 1))
        redis.call('HDEL', k.run, 'join:' .. arrive, 'then:' .. arrive)
      end
      if wait then
        local sent = take_signal(k.run, signal)
        if sent then
          publish(wait.stream, wait.head .. sent .. wait.tail)
        else
          open_wait(k, run_id, wait.guard, wait, opts.retention)
        end
      end
    end
    settle(stream, group, id)
  end
end
give_freed()
return results
