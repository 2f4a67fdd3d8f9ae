-- include: base.lua
-- Replace the agreement between the processes of a deployment, if no worker uses the old one.
-- KEYS: deployment, workers
-- ARGV: epoch of the agreement to replace, prefix of the keys that show workers' presence, whether
--       workers may be present (0/1: they join again by themselves), then field, value, …
-- Returns {1}, or {0, names of the present workers…}; only {0}: it was replaced meanwhile.
-- Race closed: two processes that replace one agreement; a worker that joins at the same time,
-- since a worker shows its presence right after it has joined.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return {0} end
if ARGV[3] == '0' then
  local there = {0}
  for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if redis.call('EXISTS', ARGV[2] .. name) == 1 then there[#there + 1] = name end
  end
  if #there > 1 then return there end
end
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], AGREEMENT_LIFE)
return {1}
