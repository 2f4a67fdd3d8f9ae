-- include: base.lua
-- include: entries.lua
-- include: budgets.lua
-- include: ledger.lua
-- include: requests.lua
-- include: room.lua
-- Answer a request: store the reply, notify its waiters, enter its usage, settle the delivery.
-- KEYS: work stream, request, run, usage, ledger
-- ARGV: group, entry id, consumer, delivery count, reply, store it (0/1), life ms, guard of the
--       step that asked ("turn.branch"), the caller's own inbox (the caller notifies itself), then
--       per usage entry: its JSON, and its JSON marked as discarded
-- Returns 'ok', 'already' (the same reply was sent before), or 'lost': another worker has the
--       request now; only the usage was entered, marked as discarded, because it was paid for.
-- A reply that is not stored (a transient error) frees the key: a retry asks again.
-- It accounts for every call that was marked under this delivery; calls that another delivery has
-- marked and never accounted for are entered as unknown.
-- Race closed: two workers answer one request; the ledger and the result disagree after a crash.
local token = ARGV[3] .. '/' .. ARGV[4] .. '/' .. ARGV[2]
local life = request_life(KEYS[3], ARGV[8], ARGV[7])
local held = holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if not held and redis.call('HGET', KEYS[2], 'by') == token then return 'already' end
if not held then
  if redis.call('HSETNX', KEYS[2], 'late:' .. token, '1') == 0 then return 'lost' end
  -- The hash may be gone with a dead letter: the new one must expire too.
  if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], life) end
end
local k = {run = KEYS[3], usage = KEYS[4], ledger = KEYS[5]}
local fields = redis.call('HGETALL', KEYS[2])
-- A call counts for the day on which it was held: the same for every call of this delivery.
local day
local noted = {}
for i = 1, #fields, 2 do
  noted[fields[i]] = true
  if string.sub(fields[i], 1, 6 + #token) == 'hold:' .. token .. '/' then
    day = string.match(fields[i + 1], '^%d+ %d+ (%d+)')
  end
end
for i = 10, #ARGV, 2 do
  enter(k, held and ARGV[i] or ARGV[i + 1], day, noted, not held)
end
local over, foreign = {}, false
for i = 1, #fields, 2 do
  local kind = string.sub(fields[i], 1, 5)
  if kind == 'mark:' or kind == 'hold:' then
    if string.sub(fields[i], 6, 6 + #token) ~= token .. '/' then
      foreign = true
    elseif kind == 'mark:' then
      over[#over + 1] = fields[i]
    else
      release(KEYS[2], string.sub(fields[i], 6))
    end
  end
end
if held then
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'w:' then
      local inbox = string.sub(fields[i], 3)
      if inbox ~= ARGV[9] then
        redis.call('XADD', inbox, '*', 'type', 'reply', 'key', fields[i + 1], 'reply', ARGV[5])
        redis.call('PEXPIRE', inbox, INBOX_LIFE)
      end
      over[#over + 1] = fields[i]
    end
  end
  over[#over + 1] = 'asked'
end
if #over > 0 then redis.call('HDEL', KEYS[2], unpack(over)) end
if not held then
  give_freed()
  return 'lost'
end
if foreign then enter_marks(k, KEYS[2]) end
unmarked[KEYS[2]] = true
give_freed()
-- The offset stays: a generator that is asked again continues where the text ended.
if ARGV[6] == '1' then
  redis.call('HSET', KEYS[2], 'by', token, 'reply', ARGV[5])
else
  redis.call('HSET', KEYS[2], 'by', token)
end
redis.call('PEXPIRE', KEYS[2], life)
settle(KEYS[1], ARGV[1], ARGV[2])
return 'ok'
