-- Replace the state of a policy unless it was changed meanwhile, log the change, and notify the
-- followers.
-- KEYS: hash of policies, stream of changes, log
-- ARGV: name, state before ('' for none), state after, life in milliseconds, entry of the log (''
--       for none), entries that are kept
-- Returns 1, or 0 if the state differs.
-- Race closed: two processes make the same decision (such as about one canary): the second finds
-- another state, so every decision is made once and is in the log once.
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
