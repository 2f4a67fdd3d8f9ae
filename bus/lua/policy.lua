-- Replaces the state of a policy if nobody else has done so meanwhile, logs the change, and notifies
-- the followers.
-- KEYS: hash of policies, stream of changes, log. ARGV: name, state before ('' for none), state
-- after, life in milliseconds, entry of the log ('' for none), entries that are kept. Returns 1, or
-- 0 if the state is another.
-- Race closed: two who decide the same (two processes that judge one canary): the second finds
-- another state, so every decision is made once and stands in the log once.
local before = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if before ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000, '*', 'name', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if ARGV[5] ~= '' then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[6], '*', 'change', ARGV[5])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
return 1
