-- include: base.lua
-- include: budgets.lua
-- include: requests.lua
-- Calls that wait until a budget has room for them (wait_for_room.lua). Their messages are in the
-- delayed sets of their streams. One sorted set per budget, `room:<its counts>`, has an entry for
-- each, by the time of its unconditional retry: the lines time, tokens, micro-dollars, guard of its
-- step, run, request, work stream. No other message of that delayed set has that time. An entry
-- whose message has come back by itself has no meaning.
-- The script that ends a call gives its room to the waiting calls, in their order.
local MOST_LOOKED_AT = 64
-- Longer than any of them waits.
local ROOM_LIFE = 60000

local function room_of(counts)
  return of_shard('room') .. ':' .. string.match(counts, '}:(.*)$')
end

-- Hold the maximum cost of a waiting call, until its mark replaces this with its own hold. Returns
-- the counts of the budget that it waits for; nil if it is to be tried again now: there was room,
-- it can never fit, or it is no longer needed.
local function promise(run, guard, request, tokens, micro)
  if redis.call('HEXISTS', request, 'hold:promise') == 1 then return nil end
  local known = redis.call('HMGET', run, 'state', 'step:' .. guard)
  if known[1] ~= 'active' or known[2] then return nil end
  local refused, waits_for = reserve(run, request, 'promise', tokens, micro)
  -- The end of its step, or of its run, must find it.
  if not refused then
    note_paid(run, guard, request)
    unmarked[request] = nil
  end
  return waits_for
end

local function add_waiting(counts, due, entry)
  redis.call('ZADD', room_of(counts), due, entry)
  redis.call('PEXPIRE', room_of(counts), ROOM_LIFE)
end

local function publish_at(stream, due)
  local delayed = string.gsub(stream, '}:work:', '}:delayed:', 1)
  for _, message in ipairs(redis.call('ZRANGE', delayed, due, due, 'BYSCORE')) do
    redis.call('XADD', stream, '*', 'e', message)
    redis.call('ZREM', delayed, message)
    redis.call('PEXPIRE', stream, STREAM_LIFE)
  end
end

local function give_room(counts)
  local room = room_of(counts)
  for _ = 1, MOST_LOOKED_AT do
    local entry = redis.call('ZRANGE', room, 0, 0)[1]
    if not entry then return end
    local due, tokens, micro, guard, run, request, stream = string.match(entry,
      '^(%d+)\n(%d+)\n(-?%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$')
    local delayed = string.gsub(stream, '}:work:', '}:delayed:', 1)
    local waits = #redis.call('ZRANGE', delayed, due, due, 'BYSCORE', 'LIMIT', 0, 1) > 0
    local waits_for = waits and promise(run, guard, request, tonumber(tokens), tonumber(micro))
    if waits_for == counts then return end  -- later ones would take what it waits for
    redis.call('ZREM', room, entry)
    if waits_for then
      add_waiting(waits_for, due, entry)
    else
      publish_at(stream, due)
    end
  end
end

-- Called once everything that calls have used is counted: earlier, there would seem to be more
-- room. `withheld_too`: the call that should take its room again is refused.
local function give_freed(withheld_too)
  local keys, given = freed, {}
  if withheld_too then
    for _, counts in ipairs(withheld) do keys[#keys + 1] = counts end
  end
  freed, withheld = {}, {}
  for _, counts in ipairs(keys) do
    if not given[counts] then
      given[counts] = true
      give_room(counts)
    end
  end
end
