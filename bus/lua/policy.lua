-- Replaces the state of a policy if nobody else has meanwhile, and tells those who follow.
-- KEYS: hash of policies, stream of changes. ARGV: name, state before ('' for none), state after,
-- life in milliseconds. Returns 1, or 0 if the state is another.
local before = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if before ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000, '*', 'name', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
