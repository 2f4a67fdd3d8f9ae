-- include: entries.lua
-- Renew leases that are still ours. Called from a separate thread, never from the work.
-- KEYS: per lease: work stream, run
-- ARGV: group, consumer, then per lease: entry id, delivery count
-- Returns one number per lease: 1 renewed, 0 lost, 2 the run has ended (renewed all the same).
-- Race closed: XCLAIM without an owner check would take a message back from the worker that has it
-- now; without JUSTID it would increment the delivery count and break the token.
local results = {}
for n = 1, #KEYS / 2 do
  local stream, run = KEYS[2 * n - 1], KEYS[2 * n]
  local id, count = ARGV[2 * n + 1], ARGV[2 * n + 2]
  if not holds(stream, ARGV[1], id, ARGV[2], count) then
    results[n] = 0
  else
    redis.call('XCLAIM', stream, ARGV[1], ARGV[2], 0, id, 'JUSTID')
    if redis.call('HGET', run, 'state') == 'ended' then results[n] = 2 else results[n] = 1 end
  end
end
return results
