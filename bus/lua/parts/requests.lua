-- include: ledger.lua
-- Requests of a step: how long they can be made again, and what happens to them when it ends.

-- Life of a request that no step waits for any more: for a worker that still holds an old lease,
-- and for an answer that is sent again after a lost connection.
local SETTLED_LIFE = 60000

-- The run lists the requests of each step, so that they are removed when they can't be made again.
local function note_request(run, guard, request)
  local field = 'asked:' .. guard
  local noted = run ~= fresh_run and redis.call('HGET', run, field) or '\n'
  if not string.find(noted, '\n' .. request .. '\n', 1, true) then
    redis.call('HSET', run, field, noted .. request .. '\n')
  end
end

-- One of its calls is marked or held: until the run ends, its end and that of the step check here.
local function note_paid(run, guard, request)
  redis.call('HSET', run, 'paid', '1')
  -- As long as its run, which may end when no process checks this request again.
  if run == fresh_run and request == fresh.request then
    if fresh.request_life < fresh.life then redis.call('PEXPIRE', request, fresh.life) end
    return
  end
  note_request(run, guard, request)
  local life = redis.call('PTTL', run)
  if redis.call('PTTL', request) < life then redis.call('PEXPIRE', request, life) end
end

local function keep_requests(noted, life)
  for request in string.gmatch(noted or '', '[^\n]+') do redis.call('PEXPIRE', request, life) end
end

-- `noted` is the value of that field of the run, `paid` of the field with that name.
local function settle_requests(k, field, noted, paid)
  enter_all_marks(k, noted, paid)
  keep_requests(noted, SETTLED_LIFE)
  if noted then redis.call('HDEL', k.run, field) end
end

-- How long a request may be made again. A committed step never asks; an ended run asks only if a
-- replay can reactivate it: its replies were paid for, and last as long as its journal.
local function request_life(run, guard, life)
  local found = redis.call('HMGET', run, 'state', 'outcome', 'step:' .. guard)
  if found[3] then return SETTLED_LIFE end
  if found[1] ~= 'ended' then return life end
  return found[2] == 'error' and redis.call('PTTL', run) or SETTLED_LIFE
end
