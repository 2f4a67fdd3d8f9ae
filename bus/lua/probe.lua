-- Whether this user may run scripts that use the keys of the bus. Changes nothing.
-- KEYS: probe, runs in flight
-- Returns how many of them there are.
return redis.call('EXISTS', KEYS[1]) + redis.call('ZCARD', KEYS[2])
