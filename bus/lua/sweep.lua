-- include: base.lua
-- include: entries.lua
-- include: turns.lua
-- Check one work stream: due retries go back to it, expired leases go to the caller.
-- KEYS: work stream, delayed set, sweep lock, active, history
-- ARGV: group, consumer, lease ms, free places of the caller, cursor, lock ms, history flag, number
--       of entries to check, the caller's count of the time (ms), whether it may end and begin runs
--       (0/1), then per delivery of this stream that the caller has in hand: entry id, delivery
--       count
-- Returns {} if another worker sweeps now, {'time'} if the caller and the server disagree about the
--       time (nothing was done), else
--       {next cursor, promoted, {{id, envelope, delivery count}…}, {overdue run ids…}, late}
-- A caller without a free place takes nothing, and leaves the lock to one that has. `late`: how
-- many expired leases were found for which the caller has no place.
-- Race closed: many workers that claim the same entries; a scan that always starts at 0-0 and never
-- reaches later entries (so the caller keeps the cursor); a worker that could not renew in time
-- takes over its own work, starts it again, and pays for its calls twice: entries that it has in
-- hand and that were not claimed are renewed instead.
local now = now_ms()
if not witnessed(now, ARGV[9]) then return {'time'} end
local free = tonumber(ARGV[4])
-- A lock that would last longer than any lock may was set before the server's clock jumped.
if free > 0 and redis.call('PTTL', KEYS[3]) > tonumber(ARGV[6]) then redis.call('DEL', KEYS[3]) end
if free > 0 and not redis.call('SET', KEYS[3], ARGV[2], 'NX', 'PX', ARGV[6]) then return {} end
rebase(KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], STREAM_LIFE)
redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
redis.call('PEXPIRE', KEYS[4], STREAM_LIFE)
local due = redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
for _, envelope in ipairs(due) do
  redis.call('XADD', KEYS[1], '*', 'e', envelope)
  redis.call('ZREM', KEYS[2], envelope)
end
-- XAUTOCLAIM checks ten entries for each that it may take, so a caller with one free place would
-- crawl through a long list: it is called again until enough entries were checked.
local scan = tonumber(ARGV[8])
local taken = {}
local cursor = ARGV[5]
local looked = 0
local in_hand = {}
for i = 11, #ARGV, 2 do in_hand[ARGV[i]] = tonumber(ARGV[i + 1]) end
while free > 0 and looked < scan do
  local r = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], cursor, 'COUNT', free)
  cursor = r[1]
  looked = looked + 10 * free
  free = free - #r[2]
  for _, entry in ipairs(r[2]) do
    local p = redis.call('XPENDING', KEYS[1], ARGV[1], entry[1], entry[1], 1)
    -- XAUTOCLAIM has increased the count by one: so no one else had claimed it.
    if in_hand[entry[1]] == p[1][4] - 1 then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1], 'RETRYCOUNT', p[1][4] - 1,
        'JUSTID')
      free = free + 1
    else
      local body = ''
      for i = 1, #entry[2], 2 do
        if entry[2][i] == 'e' then body = entry[2][i + 1] end
      end
      taken[#taken + 1] = {entry[1], body, p[1][4]}
      audit(ARGV[7], KEYS[5], 'event', 'claim', 'stream', KEYS[1], 'entry', entry[1],
        'consumer', ARGV[2], 'count', p[1][4])
    end
  end
  if cursor == '0-0' then break end
end
local late = 0
if free == 0 then
  local most = math.max(2, math.floor(scan / 10))
  local seen = redis.call('XPENDING', KEYS[1], ARGV[1], cursor, '+', most)
  for _, entry in ipairs(seen) do
    if entry[3] >= tonumber(ARGV[3]) and not in_hand[entry[1]] then late = late + 1 end
  end
  -- The next sweep starts at the late entries, and may take them.
  if late == 0 then cursor = #seen == most and seen[most][1] or '0-0' end
end
if ARGV[10] == '1' then start_next(KEYS[4]) end
local overdue = redis.call('ZRANGE', KEYS[4], '-inf', now, 'BYSCORE', 'LIMIT', 0, 50)
return {cursor, #due, taken, overdue, late}
