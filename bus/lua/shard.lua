-- include: base.lua
-- Tell the scripts of one shard what applies to the whole deployment: they may read only keys of
-- their own hash tag.
-- KEYS: the shard's copy   ARGV: field (`shift`: ms to add to the server's time; `epoch` of the
--       agreement), value
-- Returns nothing. What `rebase` recorded for each stream is kept.
-- Race closed: a paused process brings an old epoch; epochs are ordered, and only a later one is
-- accepted.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[1] ~= 'epoch' or not known or known < ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
