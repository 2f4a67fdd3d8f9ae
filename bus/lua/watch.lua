-- include: base.lua
-- Whether an agreement still holds; if so it lives on.
-- KEYS: deployment   ARGV: its epoch
-- Returns 1, 0 if there is none any more (a flush), or 2 if there is another.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 0 end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
return epoch == ARGV[1] and 1 or 2
