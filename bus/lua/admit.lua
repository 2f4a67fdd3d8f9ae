-- include: base.lua
-- include: entries.lua
-- include: budgets.lua
-- include: turns.lua
-- include: run_keys.lua
-- include: waits.lua
-- Accept a run, or state why not.
-- KEYS: run, active, trajectories, history, journal, then one work stream per open join (its
--       continuation's) and one per message
-- ARGV: run_id, run JSON, deadline ms, max runs, max unrecorded, retention ms, tokens limit,
--       micro-dollar limit, notify inbox ('' for none), history flag, number of inherited steps,
--       number of open joins, the epoch that the caller knows, the account ('' for none), whether
--       the run's end is announced (0/1), its scopes (JSON), whether it or one of its scopes brings
--       a limit along (0/1), the maximum number of working runs (0: no limit), its tenant, and the
--       tenant's weight, limit and priority ('' if this caller does not know), the delay in ms
--       after which it starts, how many runs may wait for a turn, the digest of its idempotency key
--       ('' for none), then the steps, then per join its id, the branches still to come and the
--       continuation's envelope, then per message its envelope and the caller's consumer that reads
--       its stream ('' for none)
-- Returns {'admitted', the result of `read_next` for each message: false for those of a run that
--       waits for its tenant's turn}, {'exists'} (the same run was accepted before: nothing is
--       done), or {'overloaded', what, count, limit}, {'budget', scope, kind, limit, spent, held,
--       needed} (a scope has nothing left, or not enough for the run's seconds), {'closed'} (the
--       shards are being changed), {'changed'} (they were changed: the caller's shard of a run may
--       differ).
-- A run that starts later waits for a timer with each of its messages.
-- Race closed: two clients (or one that retries after an outage) that admit the same run, and many
-- that pass the limit together; a tenant that takes every place before another asks for one.
local MOST_WAITS = 100000
local run, active, trajectories, history = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('EXISTS', run, of_shard('closed')) > 0 then
  if redis.call('EXISTS', run) == 0 then return {'closed'} end
  if ARGV[9] ~= '' then redis.call('HSET', run, 'notify', ARGV[9]) end
  return {'exists'}
end
local epoch = agreement().epoch
if epoch and epoch ~= ARGV[13] then return {'changed'} end
local now, delay = now_ms(), tonumber(ARGV[23])
local tenant, fair = ARGV[19], of_shard('fair')
local own = ARGV[21] ~= '' and ARGV[21]
local takes_turns = ARGV[18] ~= '0' or own and own ~= '0' or tenant ~= 'default'
  or redis.call('EXISTS', fair) == 1
local waits_for_turn, full, in_flight = false, nil, 0
if takes_turns then
  -- Also a tenant whose run is not admitted has asked, and should find a place.
  note_tenant(tenant, now)
  local limits = note_terms(tenant, ARGV[18], ARGV[20], ARGV[21], ARGV[22])
  -- A run that starts later has no place meanwhile.
  waits_for_turn = delay == 0 and not may_work(active, tenant, now, limits)
end
if waits_for_turn then
  full = no_place(tenant, 'runs waiting for their turn', redis.call('ZCARD', of_shard('turn-waits')),
    tonumber(ARGV[24]), redis.call('LLEN', of_shard('queue') .. ':' .. tenant), now)
else
  in_flight = redis.call('ZCARD', active)
  full = no_place(tenant, 'runs in flight', in_flight, tonumber(ARGV[4]),
    takes_turns and working_runs(tenant, now) or 0, now)
end
if full then return {'overloaded', unpack(full)} end
-- They are not among the runs in flight, but use memory all the same.
local waits = redis.call('ZCARD', of_shard('waits'))
if waits >= MOST_WAITS then return {'overloaded', 'waits of runs', waits, MOST_WAITS} end
local unrecorded = redis.call('XLEN', trajectories)
if unrecorded >= tonumber(ARGV[5]) then
  return {'overloaded', 'trajectories waiting for the recorder', unrecorded, ARGV[5]}
end
local day = math.floor(now / 86400000)
terms[run] = {ARGV[17], ARGV[16], ARGV[7], ARGV[8], ARGV[14]}
local budgets = run_budgets(run, day)
local seconds = math.max(0, ARGV[3] - now)
for _, budget in ipairs(budgets) do
  for n = 1, 3 do
    local limit = budget[4][n]
    if limit > 0 and budget[2] ~= run then
      local spent, held = counted(budget, n)
      local need = n == 3 and seconds or 0
      if spent >= limit or n == 3 and spent + held + need > limit then
        return refusal(budget, n, spent, held, need)
      end
    end
  end
end
local deadline = ARGV[3]
if waits_for_turn then
  deadline = string.format('%.0f', now + AWAY_LIFE + seconds)
  redis.call('HSET', run, 'left', seconds, 'retention', ARGV[6])
end
local record = {'run', ARGV[2], 'state', 'active', 'deadline', deadline, 'admitted', now,
  'tokens', 0, 'micro', 0, 'tokens_limit', ARGV[7], 'micro_limit', ARGV[8], 'notify', ARGV[9],
  'generation', 0, 'account', ARGV[14],
  'announce', ARGV[15], 'scopes', ARGV[16], 'limited', ARGV[17]}
if takes_turns then
  record[#record + 1] = 'tenant'
  record[#record + 1] = tenant
end
if ARGV[25] ~= '' then
  record[#record + 1] = 'idempotency'
  record[#record + 1] = ARGV[25]
end
redis.call('HSET', run, unpack(record))
hold_seconds(run, budgets, day, seconds)
-- Relative, since the server's time may differ from the deployment's.
local life = deadline + ARGV[6] - now
redis.call('PEXPIRE', run, life)
keep_caller_key(ARGV[25], life)
if not waits_for_turn then
  redis.call('ZADD', active, deadline, ARGV[1])
  -- The set, with its life, is gone after its last run.
  if in_flight == 0 then redis.call('PEXPIRE', active, STREAM_LIFE) else renew(active, STREAM_LIFE) end
end
list_run(ARGV[14], ARGV[1], now, ARGV[6])
-- A fork inherits the start of another run's journal, and the joins that it left open.
local steps, joins = tonumber(ARGV[11]), tonumber(ARGV[12])
local a = 26
for i = 1, steps do
  redis.call('RPUSH', KEYS[5], ARGV[a])
  a = a + 1
end
if steps > 0 then redis.call('PEXPIRE', KEYS[5], life) end
for i = 1, joins do
  redis.call('HSET', run, 'join:' .. ARGV[a], ARGV[a + 1],
    'then:' .. ARGV[a], KEYS[5 + i] .. '\n' .. ARGV[a + 2])
  a = a + 3
end
local result = {'admitted'}
if takes_turns then
  if waits_for_turn then
    queue_run(run, ARGV[1], tenant, now)
  elseif delay == 0 then
    note_working(tenant, ARGV[1], deadline)
  end
end
for i = 6 + joins, #KEYS do
  if delay > 0 then
    open_wait({run = run, active = active}, ARGV[1], 'start.' .. (i - 6 - joins), {kind = 'timer',
      name = 'start', ms = delay, stream = KEYS[i], note = '{}', head = ARGV[a], tail = ''}, ARGV[6])
    result[#result + 1] = false
  elseif waits_for_turn then
    redis.call('HSET', run, 'parked:' .. i, KEYS[i] .. '\n' .. ARGV[a])
    result[#result + 1] = false
  else
    redis.call('XADD', KEYS[i], '*', 'e', ARGV[a])
    renew(KEYS[i], STREAM_LIFE)
    result[#result + 1] = read_next(KEYS[i], 'workers', ARGV[a + 1])
  end
  a = a + 2
end
fresh_run, fresh = run, {'active', false, deadline, life = life}
audit(ARGV[10], history, 'event', 'admit', 'run_id', ARGV[1])
return result
