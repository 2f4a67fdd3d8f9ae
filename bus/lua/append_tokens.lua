-- include: entries.lua
-- include: requests.lua
-- Append generated text to a run's log, at the right offset or not at all.
-- KEYS: log, request, run, work stream
-- ARGV: group, entry id, consumer, delivery count, request key, offset (tokens before this piece),
--       text, ids JSON, number of ids, agent, restart (0/1), life ms if the run is unknown, weights
--       JSON (that sampled the ids; null if no successor continues from them), guard of the step
--       that asked ("turn.branch")
-- Returns {'ok', the entry's id, number of entries in the log}, {'stale'} (the lease is lost: another
--       worker may write) or {'gap', expected offset}.
-- Race closed: a generator that was paused and replaced wakes up and writes, even after its
-- successor has answered: followers would see repeated text. The lease itself is the fence.
-- `restart` starts the text from the beginning, for an engine that can't continue from ids.
if not holds(KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return {'stale'} end
local offset = tonumber(redis.call('HGET', KEYS[2], 'offset') or '0')
local at = tonumber(ARGV[6])
if ARGV[11] == '1' then offset = 0 end
if at ~= offset then return {'gap', offset} end
redis.call('HSET', KEYS[2], 'offset', at + ARGV[9])
local id = redis.call('XADD', KEYS[1], '*', 'type', ARGV[11] == '1' and 'restart' or 'tokens',
  'call', ARGV[5], 'agent', ARGV[10], 'offset', at, 'text', ARGV[7], 'ids', ARGV[8],
  'weights', ARGV[13])
local left = redis.call('PTTL', KEYS[3])
if left <= 0 then left = ARGV[12] end
redis.call('PEXPIRE', KEYS[1], left)
redis.call('PEXPIRE', KEYS[2], request_life(KEYS[3], ARGV[14], left))
return {'ok', id, redis.call('XLEN', KEYS[1])}
