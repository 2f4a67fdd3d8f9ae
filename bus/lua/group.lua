-- include: base.lua
-- Create a stream and a group on it, from its first entry on, unless they exist.
-- KEYS: stream   ARGV: group
-- Returns 1 if the group is new, 0 if it existed.
-- Race closed: a process that dies between creating the stream and limiting its life would leave a
-- key forever.
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
redis.call('PEXPIRE', KEYS[1], STREAM_LIFE)
return made.err and 0 or 1
