-- include: base.lua
-- include: budgets.lua
-- Ledger: calls that were paid for, and calls that may have been.

-- Count a ledger line in the run's account and budgets. A line of unknown usage counts with its
-- maximum cost, permanently: a late answer to that call is not counted again, so the request, whose
-- fields are `noted` if they are passed, must still have the call's mark. An unbilled call does not
-- count if its answer came too `late` to be used.
local function spend(run, line, day, noted, late)
  local info = terms_of(run)
  local account = info[5] and info[5] ~= '' and info[5]
  day = day or today()
  local budgets = budgets_of(run, day, info)
  if not account and #budgets == 0 then return end
  local entry = cjson.decode(line)
  local call = noted and entry.sent_as
  if call and call ~= '' and not noted['mark:' .. call] then return end
  if late and call == '' then return end
  local known = entry.usage ~= cjson.null
  local usage = known and entry.usage or entry.unknown
  local micro = known and entry.cost_micro_dollars or entry.unknown.micro_dollars
  local accounts = account and spent_key('key:' .. account, day)
  local function count(key, prefix)
    redis.call('HINCRBY', key, prefix .. 'tokens', usage.prompt + usage.completion)
    if micro ~= 0 then redis.call('HINCRBY', key, prefix .. 'micro', micro) end
    if prefix == '' then renew(key, counts_life(key)) end
  end
  if accounts then count(accounts, '') end
  for _, budget in ipairs(budgets) do
    if budget[2] ~= accounts then count(budget[2], budget[3]) end
  end
end

-- A call that may cost money is marked in its request before it is sent (mark.lua). The mark is the
-- ledger line for a call of unknown outcome, and is entered when no process is left that knows
-- more.
local function enter(k, line, day, noted, late)
  spend(k.run, line, day, noted, late)
  redis.call('RPUSH', k.usage, line)
  redis.call('XADD', k.ledger, '*', 'usage', line)
  renew(k.ledger, STREAM_LIFE)
  local life = redis.call('PTTL', k.run)
  redis.call('PEXPIRE', k.usage, life > 0 and life or STREAM_LIFE)
end

-- Enter the marks of a request in the ledger, except those of the delivery `token`. A call to one
-- of the deployment's own models died with its worker: its hold is released.
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

-- Requests without any mark or hold, as this call has just seen.
local unmarked = {}

local function enter_all_marks(k, noted, paid)
  if not noted or not paid then return end
  for request in string.gmatch(noted, '[^\n]+') do
    if not unmarked[request] then enter_marks(k, request) end
  end
end
