-- include: base.lua
-- Turns of tenants (bus/tenants.py). If its tenant, or the deployment, has reached its limit of runs at
-- work, an admitted run is parked: its messages stay in its hash until another run ends. Then the
-- tenant that has received the least for its weight is next, among those with the highest priority.
-- `fair`: the common limit, virtual time `v`, and per tenant its weight `w:`, limit `c:`, priority `p:`
-- and virtual time `t:`; `parked`: runs that wait; `queue:<tenant>`: the same in order; `turns`: tenants
-- that wait, the next one first; `working:<tenant>`: its runs at work, by deadline.
local PRIORITY = 1e9

local function working_runs(tenant, now)
  local key = of_shard('working') .. ':' .. tenant
  -- Runs that nobody ended, because no sweeper ran for a long time, must not keep their place for ever.
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - LONGEST_RUN)
  return redis.call('ZCARD', key)
end

-- `without`: runs in flight that do not count.
local function may_work(active, tenant, now, without)
  local fair = redis.call('HMGET', of_shard('fair'), 'limit', 'c:' .. tenant)
  local limit, own = tonumber(fair[1] or 0), tonumber(fair[2] or 0)
  if own > 0 and working_runs(tenant, now) >= own then return false end
  local working = redis.call('ZCARD', active) - redis.call('ZCARD', of_shard('parked')) - without
  return limit == 0 or working < limit
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
  redis.call('PEXPIRE', of_shard('turns'), STREAM_LIFE)
end

local function queue_run(run, run_id, tenant, now)
  local queue = of_shard('queue') .. ':' .. tenant
  redis.call('RPUSH', queue, run_id)
  redis.call('PEXPIRE', queue, STREAM_LIFE)
  redis.call('ZADD', of_shard('parked'), now, run_id)
  redis.call('PEXPIRE', of_shard('parked'), STREAM_LIFE)
  queue_tenant(tenant)
end

-- Start a parked run: publish its messages.
local function start_run(run, run_id, tenant)
  local fields = redis.call('HGETALL', run)
  local messages, deadline = {}, 0
  for i = 1, #fields, 2 do
    local n = string.match(fields[i], '^parked:(%d+)$')
    if n then messages[tonumber(n)] = {fields[i], fields[i + 1]} end
    if fields[i] == 'deadline' then deadline = fields[i + 1] end
  end
  redis.call('ZREM', of_shard('parked'), run_id)
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
      if may_work(active, tenant, now, 0) then next_tenant = tenant break end
    end
    if not next_tenant then return end
    local queue = of_shard('queue') .. ':' .. next_tenant
    local run_id = redis.call('LPOP', queue)
    local run = run_id and of_shard('run') .. ':' .. run_id
    if run and redis.call('HGET', run, 'state') == 'active' then
      start_run(run, run_id, next_tenant)
      local fair = redis.call('HMGET', of_shard('fair'), 't:' .. next_tenant, 'w:' .. next_tenant)
      local before = tonumber(fair[1] or 0)
      local after = before + 1 / math.max(0.001, tonumber(fair[2] or 1))
      redis.call('HSET', of_shard('fair'), 'v', string.format('%.9f', before),
        't:' .. next_tenant, string.format('%.9f', after))
    elseif run_id then
      redis.call('ZREM', of_shard('parked'), run_id)
    end
    redis.call('ZREM', of_shard('turns'), next_tenant)
    if #redis.call('LRANGE', queue, 0, 0) > 0 then queue_tenant(next_tenant) end
  end
end

-- A run that had a turn, or waited for one, has ended.
local function leave_turn(active, run, run_id, tenant)
  if not tenant or tenant == '' then return end
  redis.call('ZREM', of_shard('working') .. ':' .. tenant, run_id)
  redis.call('ZREM', of_shard('parked'), run_id)
  start_next(active)
end
