-- include: base.lua
-- include: waits.lua
-- Approve or deny what a run waits with: the step is repeated, and finds the decision.
-- KEYS: run, active, history
-- ARGV: run_id, guard, key of the request, digest of what the caller has seen, the decision (JSON),
--       retention ms, history flag
-- Returns 'ok' (also if the same decision was made before), 'decided' (another one was), 'changed'
--       (the waiting call is not the one that the caller has seen) or 'missing'.
-- Race closed: two people decide at once, or one as the time runs out: the first decision counts.
local run = KEYS[1]
local decided = redis.call('HGET', run, 'approval:' .. ARGV[3])
if decided then return decided == ARGV[5] and 'ok' or 'decided' end
local wait = read_wait(run, ARGV[2])
if not wait or wait.kind ~= 'approval' or wait.name ~= ARGV[3]
  or redis.call('HGET', run, 'state') ~= 'active' then return 'missing' end
if cjson.decode(wait.note).digest ~= ARGV[4] then return 'changed' end
redis.call('HSET', run, 'approval:' .. ARGV[3], ARGV[5])
wake({run = run, active = KEYS[2]}, ARGV[1], ARGV[2], wait, '', ARGV[6])
audit(ARGV[7], KEYS[3], 'event', 'decide', 'run_id', ARGV[1], 'guard', ARGV[2])
return 'ok'
