-- include: base.lua
-- include: run_keys.lua
-- include: waits.lua
-- Send a signal to a run: the wait for it ends, or the signal is kept for a later wait.
-- KEYS: run, active, history
-- ARGV: run_id, name, the signal's id, what woke (JSON), retention ms, history flag, maximum number
--       of kept signals, maximum number of signals of one run
-- Returns 'woken', 'kept', 'already' (a signal with this id was sent before: nothing is done),
--       'full' (the maximum number of signals is kept), 'many' (the run has had the maximum
--       number), 'ended' or 'missing'.
-- Race closed: two signals for one wait, or a signal and the wait's expiry: one of them ends it. A
-- signal that is sent again after a lost connection.
local run = KEYS[1]
local state = redis.call('HGET', run, 'state')
if not state then return 'missing' end
if redis.call('HEXISTS', run, 'sent:' .. ARGV[3]) == 1 then return 'already' end
if state ~= 'active' then return 'ended' end
if tonumber(redis.call('HGET', run, 'signals') or 0) >= tonumber(ARGV[8]) then return 'many' end
local first, wait
for _, guard in ipairs(open_waits(run)) do
  local w = read_wait(run, guard)
  if w.kind == 'signal' and w.name == ARGV[2] and (not wait or w.since < wait.since) then
    first, wait = guard, w
  end
end
local kept = run_key(run, 'signals')
if not wait and redis.call('LLEN', kept) >= tonumber(ARGV[7]) then return 'full' end
redis.call('HSET', run, 'sent:' .. ARGV[3], ARGV[2])
redis.call('HINCRBY', run, 'signals', 1)
audit(ARGV[6], KEYS[3], 'event', 'signal', 'run_id', ARGV[1], 'name', ARGV[2], 'id', ARGV[3])
if wait then
  wake({run = run, active = KEYS[2]}, ARGV[1], first, wait, ARGV[4], ARGV[5])
  return 'woken'
end
redis.call('RPUSH', kept, ARGV[2] .. '\n' .. ARGV[3] .. '\n' .. ARGV[4])
redis.call('PEXPIRE', kept, redis.call('PTTL', run))
return 'kept'
