-- include: end_run.lua
-- Ask once: publish a request unless it was asked before, or hand back its stored result.
-- KEYS: request, work stream, inbox
-- ARGV: envelope, life ms, name that the waiter knows the reply by
-- Returns {'done', reply} or {'waiting'}; the reply then comes to the inbox.
-- Race closed: a step retried after a crash asks again while, or after, its first request runs:
-- it is paid for once.
local reply = redis.call('HGET', KEYS[1], 'reply')
if reply then return {'done', reply} end
redis.call('HSET', KEYS[1], 'w:' .. KEYS[3], ARGV[3])
if redis.call('HSETNX', KEYS[1], 'asked', now_ms()) == 1 then
  redis.call('XADD', KEYS[2], '*', 'e', ARGV[1])
  redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'waiting'}
