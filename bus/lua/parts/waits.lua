-- include: base.lua
-- include: run_keys.lua
-- include: turns.lua
-- A run's waits are the fields `wait:<guard>` of its hash: the lines kind (`signal`, `approval`,
-- `effect` or `timer`), name, expiry (ms), start (ms), work stream, a note for its readers, and the
-- envelope that continues the run, in two parts: the outcome of a `signal` goes between them. The
-- timers are a sorted set of `<run id>/<guard>` by expiry. While it waits, a run is not among the
-- active runs and its clock is stopped: `left` is its remaining time (ms).

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

-- Record what a run waits for, for lists: a line with kind, expiry and name per wait.
local function note_waits(run)
  local lines = {}
  for _, guard in ipairs(open_waits(run)) do
    local wait = read_wait(run, guard)
    lines[#lines + 1] = wait.kind .. ' ' .. wait.expires .. ' ' .. wait.name
  end
  if #lines == 0 then return redis.call('HDEL', run, 'waits') end
  redis.call('HSET', run, 'waits', table.concat(lines, '\n'))
end

-- Stop the clock of a run that has waits, and set their timers.
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
  -- A waiting run is not working: another run may have its place.
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

-- Continue after a wait. If it was the run's last one, the run's clock continues as well.
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
  -- The run works again without a new turn: started work is finished first.
  local tenant = redis.call('HGET', k.run, 'tenant')
  if tenant and tenant ~= '' then note_working(tenant, run_id, deadline) end
  keep_run(k.run, left + retention)
  list_run(redis.call('HGET', k.run, 'account'), run_id, now_ms(), retention)
end

-- The run's wait for the outcome of a call that must not be made twice; nil if it has none.
local function wait_for_outcome(run, guard, name)
  local wait = read_wait(run, guard)
  if wait and wait.kind == 'effect' and wait.name == name
    and redis.call('HGET', run, 'state') == 'active' then return wait end
  return nil
end

-- Take the oldest signal with this name that came before its wait; the list contains lines with
-- name, id and outcome.
local function take_signal(run, name)
  for _, line in ipairs(redis.call('LRANGE', run_key(run, 'signals'), 0, -1)) do
    local of, outcome = string.match(line, '^([^\n]*)\n[^\n]*\n(.*)$')
    if of == name then
      redis.call('LREM', run_key(run, 'signals'), 1, line)
      return outcome
    end
  end
  return nil
end
