-- include: base.lua
-- Accept a reward, once for its id.
-- KEYS: rewards, reward ids of the target
-- ARGV: target, reward id, the reward (opaque), its digest, life of the ids ms, max unrecorded, max
--       rewards of one target, the epoch that the caller knows
-- Returns {'accepted'}, {'exists'} (the same reward was accepted before: nothing is done),
--       {'conflict'} (another reward has this id), {'overloaded', what, count, limit}, {'closed'}
--       (the shards are being changed) or {'changed'} (they were changed: the target's shard may
--       differ).
-- Race closed: several processes send one reward at once, or one sends it again because it was
-- killed, or lost the answer: the id is looked up and recorded in the step that publishes. The ids
-- remain when the recorder has taken the reward off the stream.
local rewards, ids = KEYS[1], KEYS[2]
local known = redis.call('HGET', ids, ARGV[2])
if known then return {known == ARGV[4] and 'exists' or 'conflict'} end
if redis.call('EXISTS', of_shard('closed')) == 1 then return {'closed'} end
local epoch = redis.call('HGET', of_shard('deployment'), 'epoch')
if epoch and epoch ~= ARGV[8] then return {'changed'} end
local unrecorded = redis.call('XLEN', rewards)
if unrecorded >= tonumber(ARGV[6]) then
  return {'overloaded', 'rewards waiting for the recorder', unrecorded, ARGV[6]}
end
-- No reward's id is empty: that field contains their number.
local count = tonumber(redis.call('HGET', ids, '') or '0')
if count >= tonumber(ARGV[7]) then
  return {'overloaded', 'rewards of ' .. ARGV[1], count, ARGV[7]}
end
redis.call('HSET', ids, ARGV[2], ARGV[4], '', count + 1)
redis.call('PEXPIRE', ids, ARGV[5])
redis.call('XADD', rewards, '*', 'reward', ARGV[3], 'at', now_ms())
redis.call('PEXPIRE', rewards, STREAM_LIFE)
return {'accepted'}
