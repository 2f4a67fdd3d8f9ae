-- Included by the scripts that can end a run; defines functions and runs nothing.
--
-- end_run(k, run_id, outcome, answer, reason, opts)
--   k = {run=, journal=, log=, usage=, active=, trajectories=, history=, ledger=}: keys of one
--   shard.
--   A run that ends at its deadline says what it failed at before, too. `opts.inbox` is the caller's
--   own, which it tells itself.
--   Marks the run ended, publishes its whole trajectory, tells its client, bounds the life of
--   all that is left, its requests' included. The caller has checked that the run is active.
-- Race closed: ending and publishing are one script, so there is no ended run without a
-- trajectory and no trajectory of a run that still moves.
-- The inbox and the requests are read from the run's hash: their keys carry the same hash tag.

local STREAM_LIFE = 604800000
-- How long a deployment may be away beyond the end of a wait, and its run still goes on.
local AWAY_LIFE = 90 * 86400000
-- What all processes agree on outlives every wait.
local AGREEMENT_LIFE = 400 * 86400000
local INBOX_LIFE = 600000
local LONGEST_RUN = 86400000
-- Of a request that no step waits for any more: for one who still holds an old lease, and for an
-- answer that goes again after a lost connection.
local SETTLED_LIFE = 60000

-- The deployment's time: the server's, and what it has jumped by (bus/clock.py). Every key of a
-- script carries the hash tag of the one that holds its shard's copy of the shift.
local function of_shard(kind)
  return string.match(KEYS[1], '^{[^}]*}:') .. kind
end

local function now_ms()
  local t = redis.call('TIME')
  local shift = redis.call('HGET', of_shard('deployment'), 'shift') or 0
  return t[1] * 1000 + math.floor(t[2] / 1000) + shift
end

-- Whether the caller's count of the time (ms) agrees. If not, one of the two is wrong, the server's
-- clock has jumped perhaps, and nothing may be decided by it.
local function witnessed(now, count)
  return math.abs(now - tonumber(count)) <= 5000
end

local function audit(on, key, ...)
  if on == '1' then
    redis.call('XADD', key, '*', ...)
    redis.call('PEXPIRE', key, STREAM_LIFE)
  end
end

-- The lease token: this consumer, at this delivery count, still holds the entry. A flushed server
-- has no group, so nobody holds anything there: an error instead would be repeated for ever by a
-- worker whose every place waits for this answer, and who would make the group anew.
local function holds(stream, group, id, consumer, count)
  local p = redis.pcall('XPENDING', stream, group, id, id, 1)
  if p.err then
    if string.find(p.err, 'NOGROUP', 1, true) then return false end
    error(p)
  end
  return p[1] ~= nil and p[1][2] == consumer and p[1][4] == tonumber(count)
end

-- Begin every lease of a stream anew, with its holder: as if all had been renewed just now.
-- Once for each jump of the server's clock: it counts the age of a lease by its own, so a jump ends
-- all leases at once, or puts off their end.
local function rebase(stream, group)
  local shift = redis.call('HMGET', of_shard('deployment'), 'shift', stream)
  if (shift[1] or '0') == (shift[2] or '0') then return end
  redis.call('HSET', of_shard('deployment'), stream, shift[1])
  local first = '-'
  while true do
    local seen = redis.pcall('XPENDING', stream, group, first, '+', 1000)
    if seen.err then return end
    for _, entry in ipairs(seen) do
      redis.call('XCLAIM', stream, group, entry[2], 0, entry[1], 'JUSTID')
    end
    if #seen < 1000 then return end
    first = '(' .. seen[#seen][1]
  end
end

-- What comes next on a work stream, read for a consumer of the process that publishes to it: that
-- needs no round trip of its own. To Redis it is a delivery as any other, in the order of the
-- stream: what has waited there for longer comes first. Returns the reply of XREADGROUP, false where
-- nothing is read.
local function read_next(stream, group, consumer)
  if consumer == '' then return false end
  local read = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
  if not read or read.err or not read[1] then return false end  -- NOGROUP after a flush
  return read[1]
end

-- Handlings of an entry that began and of which nobody knows how they ended: a hash beside the work
-- stream, entry id -> their delivery counts. An entry without a field was handled by its first
-- delivery alone, if by any: the many that are delivered once cost nothing. See begin.lua.
local function begun_of(stream)
  return (string.gsub(stream, '}:work:', '}:begun:', 1))
end

-- The delivery counts that stand for an entry, without one of them.
local function unresolved(begun, id, without)
  local counts = {}
  for count in string.gmatch(redis.call('HGET', begun, id) or '1', '%d+') do
    if count ~= without then counts[#counts + 1] = count end
  end
  return counts
end

local function settle(stream, group, id)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
  redis.call('HDEL', begun_of(stream), id)
end

-- Settle a message whose run is over. A run that ended in error can be woken by a replay of its
-- dead letter: its other messages are kept with it until then, or a join would wait for ever.
-- Returns whether it was kept.
local function abandon(stream, group, id, run)
  local kept = false
  if redis.call('HGET', run, 'outcome') == 'error' then
    for _, entry in ipairs(redis.call('XRANGE', stream, id, id)) do
      for i = 1, #entry[2], 2 do
        if entry[2][i] == 'e' then
          redis.call('HSET', run, 'kept:' .. id .. ' ' .. stream, entry[2][i + 1])
          kept = true
        end
      end
    end
  end
  settle(stream, group, id)
  return kept
end

-- The requests of a step are listed in its run, so that they go when nobody can ask again.
local function note_request(run, guard, request)
  local field = 'asked:' .. guard
  local noted = redis.call('HGET', run, field) or '\n'
  if not string.find(noted, '\n' .. request .. '\n', 1, true) then
    redis.call('HSET', run, field, noted .. request .. '\n')
  end
end

-- Budgets: the run's own, and those of its scopes (bus/budgets.py). The run's hash has its scopes as
-- JSON: {name, tokens, micro, ms, whether it counts by the day}…, with the limits that they bring
-- along, 0 where there is none. Limits that hold for every run are in the hash `budgets`, by name.
-- What a scope has spent, and what is held for calls under way, is a hash: tokens, micro, ms, and
-- the same as held:…; the run's own is its hash, where the counts begin with `spent:`.
local SPENT_LIFE = 3 * 86400000
local KINDS = {'tokens', 'micro', 'ms'}

local function today() return math.floor(now_ms() / 86400000) end

-- A caller's key is named by its account alone, as it ever was.
local function spent_key(scope, day)
  return of_shard('spent') .. ':' .. (string.match(scope, '^key:(.*)$') or scope) .. ':' .. day
end

local function counts_life(key)
  return string.sub(key, -4) == ':all' and STREAM_LIFE or SPENT_LIFE
end

-- The budgets that hold: {name, key of its counts, what begins their names, {tokens, micro, ms}}…
-- `info`: the run's `limited`, `scopes`, `tokens_limit` and `micro_limit`.
local function budgets_of(run, day, info)
  local is_set = redis.call('EXISTS', of_shard('budgets')) == 1
  if info[1] ~= '1' and not is_set then return {} end
  local budgets = {}
  local tokens, micro = tonumber(info[3] or 0), tonumber(info[4] or 0)
  if tokens > 0 or micro > 0 then budgets[1] = {'run', run, 'spent:', {tokens, micro, 0}} end
  if not info[2] or info[2] == '' then return budgets end
  for _, scope in ipairs(cjson.decode(info[2])) do
    local limits = {scope[2], scope[3], scope[4]}
    local set = is_set and redis.call('HGET', of_shard('budgets'), scope[1])
    if set then
      for n, limit in ipairs(cjson.decode(set)) do
        if limit > 0 and (limits[n] == 0 or limit < limits[n]) then limits[n] = limit end
      end
    end
    if limits[1] > 0 or limits[2] > 0 or limits[3] > 0 then
      local period = scope[5] == 1 and day or 'all'
      budgets[#budgets + 1] = {scope[1], spent_key(scope[1], period), '', limits}
    end
  end
  return budgets
end

local function run_budgets(run, day)
  return budgets_of(run, day, redis.call('HMGET', run, 'limited', 'scopes', 'tokens_limit', 'micro_limit'))
end

-- What a budget has spent and what it holds of a kind.
local function counted(budget, n)
  local counts = redis.call('HMGET', budget[2], budget[3] .. KINDS[n], 'held:' .. KINDS[n])
  return tonumber(counts[1] or 0), tonumber(counts[2] or 0)
end

local function whole(number) return string.format('%.0f', number) end

local function refusal(budget, n, spent, held, need)
  return {'budget', budget[1], KINDS[n], whole(budget[4][n]), whole(spent), whole(held), whole(need)}
end

-- Hold the most that a call can come to, in every budget of its run or in none. `micro` is negative
-- where its price is not known. Returns nothing, or a refusal; one that is for good comes before one
-- that only other calls under way are the reason for.
local function reserve(run, request, call, tokens, micro)
  local day = today()
  local budgets = run_budgets(run, day)
  if #budgets == 0 then return nil end
  local need, waits = {tokens, micro}, nil
  for _, budget in ipairs(budgets) do
    for n = 1, 2 do
      local limit = budget[4][n]
      if limit > 0 then
        local spent, held = counted(budget, n)
        if need[n] < 0 then return refusal(budget, n, spent, held, need[n]) end
        if spent + need[n] > limit then return refusal(budget, n, spent, held, need[n]) end
        if spent + held + need[n] > limit then
          waits = waits or refusal(budget, n, spent, held, need[n])
        end
      end
    end
  end
  if waits then return waits end
  local keys = {}
  for i, budget in ipairs(budgets) do
    redis.call('HINCRBY', budget[2], 'held:tokens', tokens)
    redis.call('HINCRBY', budget[2], 'held:micro', math.max(0, micro))
    if budget[3] == '' then redis.call('PEXPIRE', budget[2], counts_life(budget[2])) end
    keys[i] = budget[2]
  end
  redis.call('HSET', request, 'hold:' .. call,
    tokens .. ' ' .. math.max(0, micro) .. ' ' .. day .. '\n' .. table.concat(keys, '\n'))
  return nil
end

-- '-0' is no number to Redis.
local function take_back(key, field, number)
  if number ~= '0' then redis.call('HINCRBY', key, field, '-' .. number) end
end

-- Let go of what a call holds; returns the day that it is held for, if any.
local function release(request, call)
  local hold = redis.call('HGET', request, 'hold:' .. call)
  if not hold then return nil end
  redis.call('HDEL', request, 'hold:' .. call)
  local tokens, micro, day, keys = string.match(hold, '^(%d+) (%d+) (%d+)\n(.*)$')
  for key in string.gmatch(keys, '[^\n]+') do
    if redis.call('EXISTS', key) == 1 then
      take_back(key, 'held:tokens', tokens)
      take_back(key, 'held:micro', micro)
    end
  end
  return day
end

-- Admission holds the run's seconds, and its end settles them.
local function hold_seconds(run, budgets, day, ms)
  local keys = {}
  for _, budget in ipairs(budgets) do
    if budget[4][3] > 0 then
      redis.call('HINCRBY', budget[2], 'held:ms', whole(ms))
      redis.call('PEXPIRE', budget[2], counts_life(budget[2]))
      keys[#keys + 1] = budget[2]
    end
  end
  if #keys > 0 then redis.call('HSET', run, 'held:ms', whole(ms) .. '\n' .. table.concat(keys, '\n')) end
end

local function settle_seconds(run, now)
  local held = redis.call('HMGET', run, 'held:ms', 'admitted', 'began', 'left')
  if not held[1] then return end
  redis.call('HDEL', run, 'held:ms')
  local ms, keys = string.match(held[1], '^(%d+)\n(.*)$')
  -- Its time may stand still, or have begun later than it was let in.
  local took = held[4] and ms - held[4] or now - (held[3] or held[2])
  took = math.max(0, math.min(tonumber(ms), took))
  for key in string.gmatch(keys, '[^\n]+') do
    if redis.call('EXISTS', key) == 1 then
      take_back(key, 'held:ms', ms)
      redis.call('HINCRBY', key, 'ms', whole(took))
    end
  end
end

-- What a ledger line comes to counts for the run's account and budgets. A line of which nothing is
-- known counts with the most that it can have cost, and is not taken back: the line of a late answer
-- to that call is not counted again, so `request`, where it is given, must still have its mark. What
-- nobody bills does not count where it came too `late` for anyone to use.
local function spend(run, line, day, request, late)
  local info = redis.call('HMGET', run, 'limited', 'scopes', 'tokens_limit', 'micro_limit', 'account')
  local account = info[5] and info[5] ~= '' and info[5]
  day = day or today()
  local budgets = budgets_of(run, day, info)
  if not account and #budgets == 0 then return end
  local entry = cjson.decode(line)
  local call = request and entry.sent_as
  if call and call ~= '' and redis.call('HEXISTS', request, 'mark:' .. call) == 0 then return end
  if late and call == '' then return end
  local known = entry.usage ~= cjson.null
  local usage = known and entry.usage or entry.unknown
  local micro = known and entry.cost_micro_dollars or entry.unknown.micro_dollars
  local accounts = account and spent_key('key:' .. account, day)
  local function count(key, prefix)
    redis.call('HINCRBY', key, prefix .. 'tokens', usage.prompt + usage.completion)
    redis.call('HINCRBY', key, prefix .. 'micro', micro)
    if prefix == '' then redis.call('PEXPIRE', key, counts_life(key)) end
  end
  if accounts then count(accounts, '') end
  for _, budget in ipairs(budgets) do
    if budget[2] ~= accounts then count(budget[2], budget[3]) end
  end
end

-- A call that may be paid for is marked in its request before it is sent (mark.lua). The mark is the
-- ledger's line for a call of which nothing is known, and becomes it when nobody is left to say more.
local function enter(k, line, day, request, late)
  spend(k.run, line, day, request, late)
  redis.call('RPUSH', k.usage, line)
  redis.call('XADD', k.ledger, '*', 'usage', line)
  redis.call('PEXPIRE', k.ledger, STREAM_LIFE)
  local life = redis.call('PTTL', k.run)
  redis.call('PEXPIRE', k.usage, life > 0 and life or STREAM_LIFE)
end

-- The marks of a request, but for those of the delivery `token`, go to the ledger. What a call of a
-- model of one's own held is let go of: it died with its worker.
local function enter_marks(k, request, token)
  for _, field in ipairs(redis.call('HKEYS', request)) do
    local kind, call = string.match(field, '^(%l+):(.*)$')
    local own = token and call and string.sub(call, 1, #token + 1) == token .. '/'
    if kind == 'mark' and not own then
      enter(k, redis.call('HGET', request, field), release(request, call))
      redis.call('HDEL', request, field)
    elseif kind == 'hold' and not own then
      if redis.call('HEXISTS', request, 'mark:' .. call) == 0 then release(request, call) end
    end
  end
end

local function enter_all_marks(k, noted)
  if not noted or not redis.call('HGET', k.run, 'paid') then return end
  for request in string.gmatch(noted, '[^\n]+') do enter_marks(k, request) end
end

-- Calls that must not be made twice (begin_effect.lua): a hash, request -> who began the call, on which
-- work stream, and what its readers want to know of it.
local function note_effect(effects, request, token, stream, note, life)
  redis.call('HSET', effects, request, token .. '\n' .. stream .. '\n' .. note)
  redis.call('PEXPIRE', effects, life)
end

-- Whether the delivery that began the call is still in its worker's hands.
local function effect_is_held(line, group)
  local consumer, count, id, stream = string.match(line, '^(.*)/(%d+)/([^/\n]*)\n([^\n]*)\n')
  return consumer ~= nil and holds(stream, group, id, consumer, count)
end

local function keep_requests(noted, life)
  for request in string.gmatch(noted or '', '[^\n]+') do redis.call('PEXPIRE', request, life) end
end

local function settle_requests(k, field)
  local noted = redis.call('HGET', k.run, field)
  enter_all_marks(k, noted)
  keep_requests(noted, SETTLED_LIFE)
  redis.call('HDEL', k.run, field)
end

-- How long a request may be asked for again: a committed step never asks. Nor does an ended run,
-- but for one that a replay may wake: its replies were paid for, and last as long as its journal.
local function request_life(run, guard, life)
  local found = redis.call('HMGET', run, 'state', 'outcome', 'step:' .. guard)
  if found[3] then return SETTLED_LIFE end
  if found[1] ~= 'ended' then return life end
  return found[2] == 'error' and redis.call('PTTL', run) or SETTLED_LIFE
end

local function beside(run, kind)
  return (string.gsub(run, '}:run:', '}:' .. kind .. ':', 1))
end

-- All that a live run has lives until its deadline, and the retention after it.
local function keep_run(run, life)
  for _, kind in ipairs({'run', 'journal', 'log', 'usage', 'signals'}) do
    redis.call('PEXPIRE', beside(run, kind), life)
  end
  for _, field in ipairs(redis.call('HKEYS', run)) do
    if string.sub(field, 1, 6) == 'asked:' then
      for request in string.gmatch(redis.call('HGET', run, field), '[^\n]+') do
        if redis.call('PTTL', request) < life then redis.call('PEXPIRE', request, life) end
      end
    end
  end
end

-- The lists of runs go back as far as any run may last that began when it was let in. What is listed
-- stays where it is.
local function list_run(run, run_id, now, retention)
  local function list(runs)
    redis.call('ZADD', runs, 'NX', now, run_id)
    redis.call('ZREMRANGEBYSCORE', runs, '-inf', now - LONGEST_RUN - retention)
    redis.call('PEXPIRE', runs, STREAM_LIFE)
  end
  list(of_shard('runs'))
  local account = redis.call('HGET', run, 'account')
  if account and account ~= '' then list(of_shard('runs-of') .. ':' .. account) end
end

-- Turns of tenants (bus/tenants.py). A run that is let in while its tenant, or all together, have as
-- many runs at work as they may, is parked: its messages stay in its hash until a run ends, and then
-- the tenant that has had the least for its weight is next, of those with the highest priority. It is
-- not in flight meanwhile, and its time stands still: `left` is what it has of it (ms).
-- `fair`: limit of all, virtual time `v`, and of each tenant its weight `w:`, limit `c:`, priority `p:`
-- and virtual time `t:`; `turn-waits`: runs that wait; `queue:<tenant>`: in their order; `turns`:
-- tenants that wait, the next first; `working:<tenant>`: its runs at work, by deadline; `tenants`: those
-- that have asked, by the last time. `parked` has runs that an earlier version let in: they wait among
-- the active ones.
local PRIORITY = 1e9
-- Where several tenants ask for places, each may have this many times as many as are free, times its
-- weight: the free ones stay a tenth beside one tenant that takes all it can. See bus/tenants.py.
local OF_FREE = 9
-- How long a tenant that asks for nothing any more is counted among them.
local TENANT_LIFE = 86400000

local function working_runs(tenant, now)
  local key = of_shard('working') .. ':' .. tenant
  -- Ended by nobody, as by no sweeper for a long time: they hold no place for ever.
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - LONGEST_RUN)
  return redis.call('ZCARD', key)
end

-- What keeps a tenant's next run out, if anything: {what, how many there are, how many may be}. `most`:
-- places of all, of which `total` are taken, `count` by this tenant.
local function no_place(tenant, what, total, most, count)
  if total >= most then return {what, total, most} end
  if redis.call('ZCARD', of_shard('tenants')) < 2 then return nil end
  local weight = tonumber(redis.call('HGET', of_shard('fair'), 'w:' .. tenant) or 1)
  local share = math.floor(OF_FREE * math.max(0.001, weight) * (most - total))
  if count > 0 and count >= share then
    return {what .. ' of the tenant ' .. tenant .. ', beside those of others', count, share}
  end
  return nil
end

local function note_tenant(tenant, now)
  local key = of_shard('tenants')
  redis.call('ZADD', key, now, tenant)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - TENANT_LIFE)
  redis.call('PEXPIRE', key, STREAM_LIFE)
end

local function may_work(active, tenant, now)
  local fair = redis.call('HMGET', of_shard('fair'), 'limit', 'c:' .. tenant)
  local limit, own = tonumber(fair[1] or 0), tonumber(fair[2] or 0)
  if own > 0 and working_runs(tenant, now) >= own then return false end
  return limit == 0 or redis.call('ZCARD', active) - redis.call('ZCARD', of_shard('parked')) < limit
end

local function note_working(tenant, run_id, deadline)
  local key = of_shard('working') .. ':' .. tenant
  redis.call('ZADD', key, deadline, run_id)
  redis.call('PEXPIRE', key, STREAM_LIFE)
end

local function queue_tenant(tenant)
  local fair = redis.call('HMGET', of_shard('fair'), 'v', 't:' .. tenant, 'p:' .. tenant)
  local virtual = math.max(tonumber(fair[1] or 0), tonumber(fair[2] or 0))
  redis.call('HSET', of_shard('fair'), 't:' .. tenant, string.format('%.9f', virtual))
  redis.call('ZADD', of_shard('turns'), 'NX',
    string.format('%.9f', virtual - PRIORITY * tonumber(fair[3] or 0)), tenant)
  -- As long as a run may wait for its turn.
  redis.call('PEXPIRE', of_shard('turns'), AWAY_LIFE)
  redis.call('PEXPIRE', of_shard('fair'), AWAY_LIFE)
end

local function queue_run(run, run_id, tenant, now)
  local queue = of_shard('queue') .. ':' .. tenant
  redis.call('RPUSH', queue, run_id)
  redis.call('PEXPIRE', queue, AWAY_LIFE)
  redis.call('ZADD', of_shard('turn-waits'), now, run_id)
  redis.call('PEXPIRE', of_shard('turn-waits'), AWAY_LIFE)
  queue_tenant(tenant)
end

-- Let a parked run work: its messages go to their streams.
local function start_run(active, run, run_id, tenant)
  local fields = redis.call('HGETALL', run)
  local messages, deadline, left, retention = {}, 0, nil, nil
  for i = 1, #fields, 2 do
    local n = string.match(fields[i], '^parked:(%d+)$')
    if n then messages[tonumber(n)] = {fields[i], fields[i + 1]} end
    if fields[i] == 'deadline' then deadline = fields[i + 1] end
    if fields[i] == 'left' then left = tonumber(fields[i + 1]) end
    if fields[i] == 'retention' then retention = tonumber(fields[i + 1]) end
  end
  redis.call('ZREM', of_shard('parked'), run_id)
  redis.call('ZREM', of_shard('turn-waits'), run_id)
  if retention then
    local now = now_ms()
    deadline = now + left
    redis.call('HSET', run, 'deadline', deadline, 'began', now)
    redis.call('HDEL', run, 'left', 'retention')
    redis.call('ZADD', active, deadline, run_id)
    redis.call('PEXPIRE', active, STREAM_LIFE)
    keep_run(run, left + retention)
    list_run(run, run_id, now, retention)
  end
  note_working(tenant, run_id, deadline)
  for _, message in pairs(messages) do
    local stream, body = string.match(message[2], '^([^\n]*)\n(.*)$')
    redis.call('XADD', stream, '*', 'e', body)
    redis.call('PEXPIRE', stream, STREAM_LIFE)
    redis.call('HDEL', run, message[1])
  end
end

local function start_next(active)
  if redis.call('ZCARD', of_shard('turns')) == 0 then return end
  local now = now_ms()
  while true do
    local next_tenant
    for _, tenant in ipairs(redis.call('ZRANGE', of_shard('turns'), 0, 999)) do
      if may_work(active, tenant, now) then next_tenant = tenant break end
    end
    if not next_tenant then return end
    local queue = of_shard('queue') .. ':' .. next_tenant
    local run_id = redis.call('LPOP', queue)
    local run = run_id and of_shard('run') .. ':' .. run_id
    if run and redis.call('HGET', run, 'state') == 'active' then
      start_run(active, run, run_id, next_tenant)
      local fair = redis.call('HMGET', of_shard('fair'), 't:' .. next_tenant, 'w:' .. next_tenant)
      local before = tonumber(fair[1] or 0)
      local after = before + 1 / math.max(0.001, tonumber(fair[2] or 1))
      redis.call('HSET', of_shard('fair'), 'v', string.format('%.9f', before),
        't:' .. next_tenant, string.format('%.9f', after))
    elseif run_id then
      redis.call('ZREM', of_shard('parked'), run_id)
      redis.call('ZREM', of_shard('turn-waits'), run_id)
    end
    redis.call('ZREM', of_shard('turns'), next_tenant)
    if #redis.call('LRANGE', queue, 0, 0) > 0 then queue_tenant(next_tenant) end
  end
end

-- A run that had, or waited for, a turn is over.
local function leave_turn(active, run, run_id, tenant)
  if not tenant or tenant == '' then return end
  redis.call('ZREM', of_shard('working') .. ':' .. tenant, run_id)
  redis.call('ZREM', of_shard('parked'), run_id)
  redis.call('ZREM', of_shard('turn-waits'), run_id)
  start_next(active)
end

-- A run waits by the fields `wait:<guard>` of its hash: the lines kind (`signal`, `approval` or
-- `timer`), name, expiry (ms), beginning (ms), work stream, what its readers want to know of it, and
-- the envelope that goes on, in two parts: what woke a `signal` stands between them. Its timers are a
-- sorted set of `<run id>/<guard>` by expiry. Meanwhile it is not among the active runs and its time
-- stands still: `left` is what it has of it (ms).
local function read_wait(run, guard)
  local line = redis.call('HGET', run, 'wait:' .. guard)
  if not line then return nil end
  local w = {}
  w.kind, w.name, w.expires, w.since, w.stream, w.note, w.head, w.tail = string.match(line,
    '^(%a+)\n([^\n]*)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$')
  return w
end

local function open_waits(run)
  local guards = {}
  for _, field in ipairs(redis.call('HKEYS', run)) do
    if string.sub(field, 1, 5) == 'wait:' then guards[#guards + 1] = string.sub(field, 6) end
  end
  return guards
end

-- What a run waits for, for lists: lines of kind, name and expiry.
local function note_waits(run)
  local lines = {}
  for _, guard in ipairs(open_waits(run)) do
    local wait = read_wait(run, guard)
    lines[#lines + 1] = wait.kind .. ' ' .. wait.expires .. ' ' .. wait.name
  end
  if #lines == 0 then return redis.call('HDEL', run, 'waits') end
  redis.call('HSET', run, 'waits', table.concat(lines, '\n'))
end

-- Stop the time of a run that has waits, and set their timers.
local function pause_run(k, run_id, retention)
  local now, timers, latest = now_ms(), of_shard('waits'), 0
  for _, guard in ipairs(open_waits(k.run)) do
    local expires = tonumber(read_wait(k.run, guard).expires)
    latest = math.max(latest, expires)
    redis.call('ZADD', timers, expires, run_id .. '/' .. guard)
  end
  local life = latest - now + AWAY_LIFE
  if redis.call('PTTL', timers) < life then redis.call('PEXPIRE', timers, life) end
  local left = tonumber(redis.call('HGET', k.run, 'left'))
    or math.max(0, redis.call('HGET', k.run, 'deadline') - now)
  redis.call('HSET', k.run, 'left', left, 'deadline', latest + left)
  redis.call('ZREM', k.active, run_id)
  -- What waits is not at work: another may have its place.
  leave_turn(k.active, k.run, run_id, redis.call('HGET', k.run, 'tenant'))
  keep_run(k.run, latest + left - now + retention + AWAY_LIFE)
  note_waits(k.run)
end

local function open_wait(k, run_id, guard, wait, retention)
  local now = now_ms()
  redis.call('HSET', k.run, 'wait:' .. guard, table.concat({wait.kind, wait.name,
    string.format('%.0f', now + wait.ms), string.format('%.0f', now), wait.stream, wait.note,
    wait.head, wait.tail}, '\n'))
  pause_run(k, run_id, retention)
end

local function end_wait(run, run_id, guard)
  redis.call('HDEL', run, 'wait:' .. guard)
  redis.call('ZREM', of_shard('waits'), run_id .. '/' .. guard)
  note_waits(run)
end

-- Go on behind a wait; once a run has no other, its time goes on as well.
local function wake(k, run_id, guard, wait, outcome, retention)
  end_wait(k.run, run_id, guard)
  if wait.kind ~= 'signal' then outcome = '' end
  redis.call('XADD', wait.stream, '*', 'e', wait.head .. outcome .. wait.tail)
  redis.call('PEXPIRE', wait.stream, STREAM_LIFE)
  if #open_waits(k.run) > 0 then return end
  local left = tonumber(redis.call('HGET', k.run, 'left'))
  local deadline = now_ms() + left
  redis.call('HSET', k.run, 'deadline', deadline)
  redis.call('HDEL', k.run, 'left')
  redis.call('ZADD', k.active, deadline, run_id)
  redis.call('PEXPIRE', k.active, STREAM_LIFE)
  -- It is at work again without a new turn: what it began is finished first.
  local tenant = redis.call('HGET', k.run, 'tenant')
  if tenant and tenant ~= '' then note_working(tenant, run_id, deadline) end
  keep_run(k.run, left + retention)
  list_run(k.run, run_id, now_ms(), retention)
end

-- Signals that nobody has waited for yet: the lines name, id and what woke, in their order.
local function take_signal(run, name)
  for _, line in ipairs(redis.call('LRANGE', beside(run, 'signals'), 0, -1)) do
    local of, outcome = string.match(line, '^([^\n]*)\n[^\n]*\n(.*)$')
    if of == name then
      redis.call('LREM', beside(run, 'signals'), 1, line)
      return outcome
    end
  end
  return nil
end

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
  for _, key in ipairs({k.run, k.journal, k.log, k.usage, beside(k.run, 'signals')}) do
    redis.call('PEXPIRE', key, opts.retention)
  end
  audit(opts.history, k.history, 'event', 'end', 'run_id', run_id, 'outcome', outcome,
    'steps', #steps, 'generation', info[3] or '0')
end
