-- include: base.lua
-- include: run_keys.lua
-- Turns of tenants (bus/tenants.py). If its tenant, or the deployment, has reached its limit of
-- working runs, an admitted run is parked: its messages stay in its hash until another run ends.
-- Then, among the tenants with the highest priority, the one that has received the least for its
-- weight is next. A parked run is not in flight, and its clock is stopped: `left` is its remaining
-- time (ms).
-- `fair`: the common limit, virtual time `v`, and per tenant its weight `w:`, limit `c:`, priority
-- `p:` and virtual time `t:`; `turn-waits`: waiting runs; `queue:<tenant>`: the tenant's waiting
-- runs in order; `turns`: waiting tenants, the next one first; `working:<tenant>`: its working
-- runs, by deadline; `tenants`: by the time when each last asked. `parked` has runs that an earlier
-- version admitted: they wait among the active ones.
local PRIORITY = 1e9
-- The place in `turns` of tenants that are at their own limit: after all others, so that any number
-- of them hides no other tenant. Such a tenant returns when one of its runs leaves, or its limit
-- changes.
local ASIDE = 1e300
-- If several tenants ask for places, each may have this many times the free places, times its
-- weight: a tenth stays free next to one tenant that takes all it can. See bus/tenants.py.
local OF_FREE = 9
-- How long a tenant that no longer asks for anything is counted among them.
local TENANT_LIFE = 86400000

local function working_runs(tenant, now)
  -- Other runs were never ended, as without a sweeper for a long time: they hold no place forever.
  return redis.call('ZCOUNT', of_shard('working') .. ':' .. tenant, '(' .. now - LONGEST_RUN, '+inf')
end

-- What keeps a tenant's next run out, if anything: {what, how many there are, how many may be}.
-- `most`: maximum number of places, of which `total` are taken, `count` by this tenant.
local function no_place(tenant, what, total, most, count, now)
  if total >= most then return {what, total, most} end
  if redis.call('ZCOUNT', of_shard('tenants'), '(' .. now - TENANT_LIFE, '+inf') < 2 then return nil end
  local weight = tonumber(redis.call('HGET', of_shard('fair'), 'w:' .. tenant) or 1)
  local share = math.floor(OF_FREE * math.max(0.001, weight) * (most - total))
  if count > 0 and count >= share then
    return {what .. ' of the tenant ' .. tenant .. ' (it shares the places with other tenants)', count, share}
  end
  return nil
end

local function note_tenant(tenant, now)
  local key = of_shard('tenants')
  redis.call('ZADD', key, now, tenant)
  if renew(key, STREAM_LIFE) then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - TENANT_LIFE)
  end
end

-- A tenant that was put aside takes its turns again.
local function take_turns_again(tenant)
  local place = redis.call('ZSCORE', of_shard('turns'), tenant)
  if not place or tonumber(place) < ASIDE then return end
  local fair = redis.call('HMGET', of_shard('fair'), 't:' .. tenant, 'p:' .. tenant)
  redis.call('ZADD', of_shard('turns'),
    string.format('%.9f', tonumber(fair[1] or 0) - PRIORITY * tonumber(fair[2] or 0)), tenant)
end

-- Record the common limit, and the tenant's weight, limit and priority ('' if they are unknown).
-- Returns the two applicable limits.
local function note_terms(tenant, limit, weight, most, priority)
  local key, names = of_shard('fair'), {'limit', 'c:' .. tenant, 'w:' .. tenant, 'p:' .. tenant}
  local noted = redis.call('HMGET', key, unpack(names))
  for n, value in ipairs({limit, most, weight, priority}) do
    if value ~= '' and value ~= noted[n] then
      redis.call('HSET', key, names[n], value)
      noted[n] = value
      if n == 2 then take_turns_again(tenant) end
    end
  end
  renew(key, AWAY_LIFE)
  return noted
end

local function at_own_limit(tenant, own, now)
  own = tonumber(own or 0)
  return own > 0 and working_runs(tenant, now) >= own
end

local function has_room(active, limit)
  limit = tonumber(limit or 0)
  return limit == 0 or redis.call('ZCARD', active) - redis.call('ZCARD', of_shard('parked')) < limit
end

-- `fair`: the common limit and the tenant's own.
local function may_work(active, tenant, now, fair)
  return not at_own_limit(tenant, fair[2], now) and has_room(active, fair[1])
end

local function note_working(tenant, run_id, deadline)
  local key = of_shard('working') .. ':' .. tenant
  redis.call('ZADD', key, deadline, run_id)
  if renew(key, STREAM_LIFE) then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms() - LONGEST_RUN)
  end
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

-- Start a parked run: its messages go to their streams.
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
    redis.call('HSET', run, 'deadline', deadline)
    redis.call('HDEL', run, 'left', 'retention')
    redis.call('ZADD', active, deadline, run_id)
    redis.call('PEXPIRE', active, STREAM_LIFE)
    keep_run(run, left + retention)
    list_run(redis.call('HGET', run, 'account'), run_id, now, retention)
  end
  note_working(tenant, run_id, deadline)
  for _, message in pairs(messages) do
    local stream, body = string.match(message[2], '^([^\n]*)\n(.*)$')
    redis.call('XADD', stream, '*', 'e', body)
    redis.call('PEXPIRE', stream, STREAM_LIFE)
    redis.call('HDEL', run, message[1])
  end
end

-- Start the tenant's first run that has not ended.
local function start_one(active, next_tenant)
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

-- Start runs for which there is room. `left`: a tenant that has one working run fewer now.
local function start_next(active, left)
  local turns = of_shard('turns')
  local waiting = redis.call('ZCARD', turns)
  if waiting == 0 then return end
  local now = now_ms()
  if left then take_turns_again(left) end
  -- One of them is checked in any case: a run that was never ended no longer holds its place, and
  -- no call reports when.
  local sample = now % waiting
  take_turns_again(redis.call('ZRANGE', turns, sample, sample)[1])
  local limit = redis.call('HGET', of_shard('fair'), 'limit')
  while has_room(active, limit) do
    local first = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
    local next_tenant = first[1]
    if not next_tenant or tonumber(first[2]) >= ASIDE then return end
    if at_own_limit(next_tenant, redis.call('HGET', of_shard('fair'), 'c:' .. next_tenant), now) then
      redis.call('ZADD', turns, ASIDE, next_tenant)
    else
      start_one(active, next_tenant)
    end
  end
end

-- A run that had, or waited for, a turn has ended.
local function leave_turn(active, run, run_id, tenant)
  if not tenant or tenant == '' then return end
  if redis.call('ZREM', of_shard('working') .. ':' .. tenant, run_id) == 0 then
    local waited = redis.call('ZREM', of_shard('parked'), run_id) + redis.call('ZREM', of_shard('turn-waits'), run_id)
    -- Clients that come and go while all places are taken would fill the queue with ended runs,
    -- which count as waiting, and which one script would have to skip. The newest ones are at the
    -- end.
    if waited > 0 then redis.call('LREM', of_shard('queue') .. ':' .. tenant, -1, run_id) end
  end
  start_next(active, tenant)
end
