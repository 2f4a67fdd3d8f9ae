-- include: base.lua
-- include: entries.lua
-- Mark deliveries as not failed: their worker is alive, or was told to stop.
-- KEYS: work stream, begun
-- ARGV: group, consumer, lease ms, release (0/1), then per delivery: entry id, delivery count
-- Returns how many of them are still unfinished.
-- With `release`, deliveries that still belong to this consumer can be taken over at once: their
-- lease is made to look expired. Their count stays, so that their token stays unique.
-- Race closed: a delivery that another worker holds by now keeps that worker's lease, and the
-- handlings that others have started; a settled one leaves nothing behind. Safe to repeat.
local unfinished = 0
for n = 5, #ARGV, 2 do
  local id, count = ARGV[n], ARGV[n + 1]
  local p = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if p.err and not string.find(p.err, 'NOGROUP', 1, true) then return p end
  if not p.err and p[1] then
    unfinished = unfinished + 1
    redis.call('HSET', KEYS[2], id, table.concat(unresolved(KEYS[2], id, count), ' '))
    redis.call('PEXPIRE', KEYS[2], STREAM_LIFE)
    if ARGV[4] == '1' and p[1][2] == ARGV[2] and p[1][4] == tonumber(count) then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'IDLE', ARGV[3], 'JUSTID')
    end
  end
end
return unfinished
