-- include: base.lua
-- Read what the processes of a deployment have agreed on; write what is not there yet.
-- KEYS: deployment   ARGV: field, value, …
-- Returns the whole hash as it is then.
-- Race closed: several processes join first: each field is the first writer's, for all.
for i = 1, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
return redis.call('HGETALL', KEYS[1])
