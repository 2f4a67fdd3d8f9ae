-- include: base.lua
-- include: requests.lua
-- include: run_keys.lua
-- include: turns.lua
-- include: waits.lua
-- Give a dead letter another chance: back to its stream, its run active again.
-- KEYS: dead, work stream, run, active, history, journal, log, usage
-- ARGV: dead-letter id, envelope with attempt 0 and a new deadline, run_id, new deadline ms,
--       retention ms, history flag, is it a request (0/1): a request reactivates no run, but needs
--       a live one
-- Returns 'ok', 'missing' (another replay took it), 'expired' (the run's journal is gone), or
--       'ended' (the run has ended in another way since), or 'over' (no caller waits for this
--       request any more: its run has ended).
-- Race closed: two operators replay the same letter; the run's other messages, kept when it ended,
-- come back in the same step and in their order, so that no join waits for one of them; its journal
-- and the replies to it, whose life was shortened to the retention when it ended, live as long as
-- the run again.
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then return 'missing' end
local run = KEYS[3]
local state = redis.call('HMGET', run, 'state', 'outcome')
if ARGV[3] ~= '' then
  if not state[1] then return 'expired' end
  if state[1] == 'ended' then
    if ARGV[7] == '1' then return 'over' end
    if state[2] ~= 'error' then return 'ended' end
    redis.call('HSET', run, 'state', 'active', 'deadline', ARGV[4])
    redis.call('HDEL', run, 'outcome', 'answer', 'reason', 'ended', 'failure')
    redis.call('HINCRBY', run, 'generation', 1)
    local life = ARGV[4] + ARGV[5] - now_ms()
    for _, key in ipairs({run, KEYS[6], KEYS[7], KEYS[8]}) do redis.call('PEXPIRE', key, life) end
    keep_caller_key(redis.call('HGET', run, 'idempotency'), life)
    redis.call('ZADD', KEYS[4], ARGV[4], ARGV[3])
    redis.call('PEXPIRE', KEYS[4], STREAM_LIFE)
    local tenant = redis.call('HGET', run, 'tenant')
    if tenant and tenant ~= '' then note_working(tenant, ARGV[3], ARGV[4]) end
    local kept = {}
    local fields = redis.call('HGETALL', run)
    for i = 1, #fields, 2 do
      if string.sub(fields[i], 1, 6) == 'asked:' then
        keep_requests(fields[i + 1], life)
      end
      local ms, seq, stream = string.match(fields[i], '^kept:(%d+)%-(%d+) (.*)$')
      if ms then
        kept[#kept + 1] = {tonumber(ms), tonumber(seq), stream, fields[i], fields[i + 1]}
      end
    end
    table.sort(kept, function(a, b)
      if a[1] ~= b[1] then return a[1] < b[1] end
      if a[2] ~= b[2] then return a[2] < b[2] end
      return a[3] < b[3]
    end)
    for _, message in ipairs(kept) do
      redis.call('XADD', message[3], '*', 'e', message[5])
      redis.call('PEXPIRE', message[3], STREAM_LIFE)
      redis.call('HDEL', run, message[4])
    end
    if #open_waits(run) > 0 then
      pause_run({run = run, active = KEYS[4]}, ARGV[3], tonumber(ARGV[5]))
    end
    audit(ARGV[6], KEYS[5], 'event', 'replay', 'run_id', ARGV[3])
  end
end
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('XADD', KEYS[2], '*', 'e', ARGV[2])
redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
return 'ok'
