-- include: base.lua
-- Read the agreement of a deployment's processes; write fields that do not exist yet.
-- KEYS: deployment   ARGV: field, value, …
-- Returns the whole hash as it is then.
-- Race closed: several processes join first: each field has the first writer's value, for all.
for i = 1, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
return redis.call('HGETALL', KEYS[1])
