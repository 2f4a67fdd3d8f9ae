-- include: base.lua
-- Tell the scripts of one shard what holds in the whole deployment: they may read keys of their own
-- hash tag only.
-- KEYS: the shard's copy   ARGV: field (`shift`: ms to add to the server's time; `epoch` of the
--       agreement), value
-- Returns nothing. What `rebase` noted of each stream is kept.
-- Race closed: a process that stood still brings an old epoch; epochs are in order, and only a later
-- one is accepted.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[1] ~= 'epoch' or not known or known < ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
