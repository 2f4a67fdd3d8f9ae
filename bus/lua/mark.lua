-- include: entries.lua
-- include: budgets.lua
-- include: ledger.lua
-- include: requests.lua
-- include: room.lua
-- Record a call that may cost money, or that a budget limits, before it is sent, and hold its
-- maximum cost in every budget of its run. The call is sent only after this.
-- KEYS: work stream, request, run, usage, ledger
-- ARGV: group, entry id, consumer, delivery count, guard of the step that asked ("turn.branch"),
--       number of the call within this delivery, its maximum tokens (negative: it has no limit)
--       and micro-dollars (negative: it has no limit, or its price is unknown), its ledger line if
--       its outcome stays unknown ('' for an unbilled call), then per earlier call of this delivery
--       that is accounted for: its number, its ledger line ('' if nothing was paid)
-- Returns 'ok'; or 'lost' (another worker has the request), or 'over' (its step is committed or its
--       run has ended), or {'budget', its scope, kind, limit, spent, held, needed}: then nothing
--       may be sent. That refusal is final, unless spent and needed together are within the limit:
--       then other calls in progress are the reason.
-- Race closed: a worker dies after a call was sent and before its answer is stored: the mark stays,
-- and the next holder of the request, or the end of the step or of the run, enters it in the
-- ledger, once, and counts its reservation as spent. If its worker was only paused and answers
-- late, the entry of that answer has the same name, so readers know that both are one call.
-- Branches that ask at the same time can't together exceed a limit that each of them alone stays
-- within.
-- Admitted, asked and read by this same call: it is held here, and nothing is marked or held yet.
local is_first = KEYS[3] == fresh_run and KEYS[2] == fresh.request
if not is_first then
  if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 'lost' end
  local known = redis.call('HMGET', KEYS[3], 'state', 'step:' .. ARGV[5])
  if known[1] ~= 'active' or known[2] then return 'over' end
end
local k = {run = KEYS[3], usage = KEYS[4], ledger = KEYS[5]}
local token = ARGV[3] .. '/' .. ARGV[4] .. '/' .. ARGV[2]
if not is_first then
  release(KEYS[2], 'promise', true)
  enter_marks(k, KEYS[2], token)
end
for i = 10, #ARGV, 2 do
  local call = token .. '/' .. ARGV[i]
  local day = release(KEYS[2], call)
  local gone = redis.call('HDEL', KEYS[2], 'mark:' .. call)
  if gone == 1 and ARGV[i + 1] ~= '' then enter(k, ARGV[i + 1], day) end
end
local call = token .. '/' .. ARGV[6]
if is_first or redis.call('HEXISTS', KEYS[2], 'hold:' .. call) == 0 then
  local refused = reserve(KEYS[3], KEYS[2], call, tonumber(ARGV[7]), tonumber(ARGV[8]))
  if refused then
    give_freed(true)
    return refused
  end
end
give_freed()
if ARGV[9] ~= '' then redis.call('HSET', KEYS[2], 'mark:' .. call, ARGV[9])
elseif redis.call('HEXISTS', KEYS[2], 'hold:' .. call) == 0 then return 'ok' end
note_paid(KEYS[3], ARGV[5], KEYS[2])
return 'ok'
