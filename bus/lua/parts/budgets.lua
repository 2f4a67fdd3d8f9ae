-- include: base.lua
-- Budgets: the run's own, and those of its scopes (bus/budgets.py). The run's hash lists its scopes
-- as JSON: {name, tokens, micro, ms, 1 if counted per day}…, with the limits that the run sets for
-- them, 0 for none. Limits for every run are in the hash `budgets`, by name. One hash per scope
-- counts its spending (tokens, micro, ms) and what calls in progress hold (held:tokens …). The
-- run's own counts are in its hash, with the prefix `spent:`.
local SPENT_LIFE = 3 * 86400000
local KINDS = {'tokens', 'micro', 'ms'}

local function today() return math.floor(now_ms() / 86400000) end

-- The scope `key:<account>` of a caller's key is stored under only the account.
local function spent_key(scope, day)
  return of_shard('spent') .. ':' .. (string.match(scope, '^key:(.*)$') or scope) .. ':' .. day
end

-- Counts that are not reset daily are kept as long as anything is: if they expired after a quiet
-- week, the whole limit could be spent again.
local function counts_life(key)
  return string.sub(key, -4) == ':all' and AGREEMENT_LIFE or SPENT_LIFE
end

-- The applicable budgets: {name, key of its counts, prefix of their names, {tokens, micro, ms}}…
-- `info`: the run's `limited`, `scopes`, `tokens_limit` and `micro_limit`.
local budgets_exist
local function budgets_of(run, day, info)
  if budgets_exist == nil then budgets_exist = redis.call('EXISTS', of_shard('budgets')) == 1 end
  local is_set = budgets_exist
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

-- The `info` of a run, and its account. They never change, so they are read once.
local terms = {}
local function terms_of(run)
  if not terms[run] then
    terms[run] = redis.call('HMGET', run, 'limited', 'scopes', 'tokens_limit', 'micro_limit', 'account')
  end
  return terms[run]
end

local function run_budgets(run, day) return budgets_of(run, day, terms_of(run)) end

-- How much of a kind a budget has spent, and how much is held in it.
local function counted(budget, n)
  local counts = redis.call('HMGET', budget[2], budget[3] .. KINDS[n], 'held:' .. KINDS[n])
  return tonumber(counts[1] or 0), tonumber(counts[2] or 0)
end

local function whole(number) return string.format('%.0f', number) end

local function refusal(budget, n, spent, held, need)
  return {'budget', budget[1], KINDS[n], whole(budget[4][n]), whole(spent), whole(held), whole(need)}
end

-- Hold the maximum cost of a call in every budget of its run, or in none. `tokens` is negative if
-- the call has no limit; `micro` is negative then, too, and if the price is unknown. Returns
-- nothing, or a refusal: a final one if there is one, else one that is due to other calls in
-- progress, and the key of the counts that they are in.
local function reserve(run, request, call, tokens, micro)
  local day = today()
  local budgets = run_budgets(run, day)
  if #budgets == 0 then return nil end
  local need, waits, waits_for = {tokens, micro}, nil, nil
  for _, budget in ipairs(budgets) do
    for n = 1, 2 do
      local limit = budget[4][n]
      if limit > 0 then
        local spent, held = counted(budget, n)
        if need[n] < 0 then return refusal(budget, n, spent, held, need[n]) end
        if spent + need[n] > limit then return refusal(budget, n, spent, held, need[n]) end
        if not waits and spent + held + need[n] > limit then
          waits, waits_for = refusal(budget, n, spent, held, need[n]), budget[2]
        end
      end
    end
  end
  if waits then return waits, waits_for end
  local keys = {}
  for i, budget in ipairs(budgets) do
    redis.call('HINCRBY', budget[2], 'held:tokens', math.max(0, tokens))
    redis.call('HINCRBY', budget[2], 'held:micro', math.max(0, micro))
    if budget[3] == '' then redis.call('PEXPIRE', budget[2], counts_life(budget[2])) end
    keys[i] = budget[2]
  end
  local amounts = math.max(0, tokens) .. ' ' .. math.max(0, micro)
  redis.call('HSET', request, 'hold:' .. call,
    amounts .. ' ' .. day .. '\n' .. table.concat(keys, '\n'))
  return nil
end

-- Redis does not accept '-0' as a number.
local function take_back(key, field, number)
  if number ~= '0' then redis.call('HINCRBY', key, field, '-' .. number) end
end

-- Counts in which calls have freed room: give_freed (parts/room.lua) gives it to others. For
-- withheld counts, the same call takes the room again.
local freed, withheld = {}, {}

-- Release what a call holds; returns the day that it is held for, if any.
local function release(request, call, same)
  local hold = redis.call('HGET', request, 'hold:' .. call)
  if not hold then return nil end
  redis.call('HDEL', request, 'hold:' .. call)
  local tokens, micro, day, keys = string.match(hold, '^(%d+) (%d+) (%d+)\n(.*)$')
  for key in string.gmatch(keys, '[^\n]+') do
    if redis.call('EXISTS', key) == 1 then
      take_back(key, 'held:tokens', tokens)
      take_back(key, 'held:micro', micro)
      table.insert(same and withheld or freed, key)
    end
  end
  return day
end

-- Admission holds the run's seconds; the end of the run settles them.
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

-- `held`: the run's fields `held:ms`, `deadline` and `left`.
local function settle_seconds(run, now, held)
  if not held[1] then return end
  redis.call('HDEL', run, 'held:ms')
  local ms, keys = string.match(held[1], '^(%d+)\n(.*)$')
  -- The part of its time that is not left. The time stops, now or later, while the run waits:
  -- whatever ends a wait moves the deadline.
  local took = ms - (held[3] or held[2] - now)
  took = math.max(0, math.min(tonumber(ms), took))
  for key in string.gmatch(keys, '[^\n]+') do
    if redis.call('EXISTS', key) == 1 then
      take_back(key, 'held:ms', ms)
      redis.call('HINCRBY', key, 'ms', whole(took))
    end
  end
end
