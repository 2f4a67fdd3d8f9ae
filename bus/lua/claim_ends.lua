-- Claim ends of runs that are due.
-- KEYS: ends
-- ARGV: now ms, until when they are claimed (ms), maximum number
-- Returns their run ids.
-- Race closed: two announcers that check at the same moment: each end goes to one of them.
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[3])
for _, run_id in ipairs(due) do redis.call('ZADD', KEYS[1], ARGV[2], run_id) end
return due
