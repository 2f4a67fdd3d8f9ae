-- Whether this user may run scripts that use the keys of a shard. Changes nothing.
-- KEYS: runs in flight
-- Returns how many there are.
return redis.call('ZCARD', KEYS[1])
