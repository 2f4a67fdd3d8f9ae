-- include: base.lua
-- include: waits.lua
-- End waits whose time is up: their runs continue.
-- KEYS: waits, active, history
-- ARGV: retention ms, history flag, the caller's count of the time (ms), maximum number
-- Returns how many, or -1 if the caller and the server disagree about the time (nothing was done).
-- Race closed: any number of sweepers, and a signal or an approval at the same moment: the one that
-- removes the wait from its run continues it.
local now = now_ms()
if not witnessed(now, ARGV[3]) then return -1 end
local due = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[4])
local outcome = '{"kind":"expired","at":' .. string.format('%.3f', now / 1000) .. '}'
for _, member in ipairs(due) do
  local run_id, guard = string.match(member, '^([^/]*)/(.*)$')
  local run = of_shard('run') .. ':' .. run_id
  local wait = read_wait(run, guard)
  if wait and redis.call('HGET', run, 'state') == 'active' then
    local is_decided = wait.kind == 'approval'
    if wait.kind == 'effect' then
      -- Its outcome may have arrived, and its wait ended because of that (end_effect.lua).
      local request = of_shard('request') .. ':' .. string.gsub(wait.name, '/outcome$', '')
      local call = redis.call('HMGET', request, 'effect', 'outcome')
      is_decided = call[1] and not call[2]
    end
    if is_decided then
      local decided = '{"decision":"expired","digest":"' .. cjson.decode(wait.note).digest
        .. '","at":' .. string.format('%.3f', now / 1000) .. '}'
      redis.call('HSET', run, 'approval:' .. wait.name, decided)
    end
    wake({run = run, active = KEYS[2]}, run_id, guard, wait, outcome, ARGV[1])
    audit(ARGV[2], KEYS[3], 'event', 'expire', 'run_id', run_id, 'guard', guard)
  else
    redis.call('ZREM', KEYS[1], member)
  end
end
return #due
