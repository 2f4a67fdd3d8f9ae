-- include: base.lua
-- Whether an agreement is still in force; if so, its life is extended.
-- KEYS: deployment   ARGV: its epoch
-- Returns 1, 0 if there is no agreement any more (a flush), or 2 if there is another one.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 0 end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
return epoch == ARGV[1] and 1 or 2
