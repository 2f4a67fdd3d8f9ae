-- Settle an end that its claimer has announced, or make it due again later.
-- KEYS: ends
-- ARGV: the end, until when it was claimed (ms), when it is due again (ms; '' to settle it)
-- Returns 1, or 0 if it no longer belongs to this claimer: nothing was done.
-- Race closed: a run that waits with another call, or was woken and has ended once more, while its
-- claimer announced its earlier state: the new state has its own time, and is announced as well.
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due or tonumber(due) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
end
return 1
