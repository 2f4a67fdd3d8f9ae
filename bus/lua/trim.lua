-- Trim a stream of several groups to the oldest id that every group has acknowledged.
-- KEYS: stream
-- Returns the number of entries removed. A stream without a group is not trimmed.
-- Race closed: MAXLEN would remove entries that a slow group has not read; the bound is computed
-- and used in one script.
-- A flushed server has no such stream: then there is nothing to trim, which is not an error to
-- repeat.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local groups = redis.call('XINFO', 'GROUPS', KEYS[1])
if #groups == 0 then return 0 end
local function parts(id)
  local dash = string.find(id, '-', 1, true)
  return tonumber(string.sub(id, 1, dash - 1)), tonumber(string.sub(id, dash + 1))
end
local function before(a, b)
  local at, as = parts(a)
  local bt, bs = parts(b)
  return at < bt or (at == bt and as < bs)
end
local keep
for _, group in ipairs(groups) do
  local g = {}
  for i = 1, #group, 2 do g[group[i]] = group[i + 1] end
  local bound
  local pending = redis.call('XPENDING', KEYS[1], g.name)
  if pending[1] > 0 then
    bound = pending[2]
  else
    -- Everything up to the last delivered entry is acknowledged: keep the entries after it.
    local ms, seq = parts(g['last-delivered-id'])
    bound = string.format('%.0f-%.0f', ms, seq + 1)
  end
  if not keep or before(bound, keep) then keep = bound end
end
return redis.call('XTRIM', KEYS[1], 'MINID', keep)
