-- include: entries.lua
-- include: effects.lua
-- include: requests.lua
-- Record a call that must not be made twice before it is made.
-- KEYS: work stream, request, run, effects
-- ARGV: group, entry id, consumer, delivery count, guard of the step that asked ("turn.branch"),
--       the note about the call (bytes for its readers), life of the note in ms, whether the call
--       is made even if another delivery has started it (0/1)
-- Returns {'ok'}: make the call; {'interrupted'}: another delivery has started it, and its outcome
--       is unknown; {'resolved', reply}: its outcome is known; {'lost'}: another worker has the
--       request; {'over'}: its step is committed or its run has ended: nothing may be done.
-- Race closed: a worker dies, or is paused, between the call and its reply. The next holder of the
-- request finds that the call was started. Repeated by the same delivery, after a lost connection,
-- the result is 'ok' again.
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return {'lost'} end
local known = redis.call('HMGET', KEYS[3], 'state', 'step:' .. ARGV[5])
if known[1] ~= 'active' or known[2] then return {'over'} end
local token = ARGV[3] .. '/' .. ARGV[4] .. '/' .. ARGV[2]
local before = redis.call('HMGET', KEYS[2], 'effect', 'outcome')
if before[2] then return {'resolved', before[2]} end
if before[1] and before[1] ~= token and ARGV[8] ~= '1' then return {'interrupted'} end
redis.call('HSET', KEYS[2], 'effect', token)
note_effect(KEYS[4], KEYS[2], token, KEYS[1], ARGV[6], ARGV[7])
-- As long as its run: a replay may ask for it long after.
local life = redis.call('PTTL', KEYS[3])
if redis.call('PTTL', KEYS[2]) < life then redis.call('PEXPIRE', KEYS[2], life) end
note_request(KEYS[3], ARGV[5], KEYS[2])
return {'ok'}
