-- include: base.lua
-- Entries of a work stream: leases, started deliveries, and how an entry leaves its stream.

-- Whether this consumer, at this delivery count, still holds the entry. A flushed server has no
-- group, so no consumer holds anything there. That must not be an error: a worker whose places all
-- wait for this answer would repeat the call forever and never create the group again.
local function holds(stream, group, id, consumer, count)
  local p = redis.pcall('XPENDING', stream, group, id, id, 1)
  if p.err then
    if string.find(p.err, 'NOGROUP', 1, true) then return false end
    error(p)
  end
  return p[1] ~= nil and p[1][2] == consumer and p[1][4] == tonumber(count)
end

-- Restart every lease of a stream for its holder, as if it had just been renewed. Done once for
-- each jump of the server's clock: the server measures the age of a lease by that clock, so a jump
-- expires all leases at once, or delays their expiry.
local function rebase(stream, group)
  local shift = redis.call('HMGET', of_shard('deployment'), 'shift', stream)
  if (shift[1] or '0') == (shift[2] or '0') then return end
  redis.call('HSET', of_shard('deployment'), stream, shift[1])
  local first = '-'
  while true do
    local seen = redis.pcall('XPENDING', stream, group, first, '+', 1000)
    if seen.err then return end
    for _, entry in ipairs(seen) do
      redis.call('XCLAIM', stream, group, entry[2], 0, entry[1], 'JUSTID')
    end
    if #seen < 1000 then return end
    first = '(' .. seen[#seen][1]
  end
end

-- Read the next entry of a work stream for a consumer of the process that publishes to it, which
-- saves a round trip. Redis treats it like any other delivery, in stream order: the oldest waiting
-- entry comes first. Returns the reply of XREADGROUP, or false if nothing was read.
local function read_next(stream, group, consumer)
  if consumer == '' then return false end
  local read = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
  if not read or read.err or not read[1] then return false end  -- NOGROUP after a flush
  return read[1]
end

-- Handlings that started and whose end is unknown: a hash per work stream, entry id -> their
-- delivery counts. An entry without a field was handled only by its first delivery, if at all, so
-- the many entries that are delivered once cost nothing. See begin.lua.
local function begun_of(stream)
  return (string.gsub(stream, '}:work:', '}:begun:', 1))
end

-- The delivery counts recorded for an entry, except `without`.
local function unresolved(begun, id, without)
  local counts = {}
  for count in string.gmatch(redis.call('HGET', begun, id) or '1', '%d+') do
    if count ~= without then counts[#counts + 1] = count end
  end
  return counts
end

local function settle(stream, group, id)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
  redis.call('HDEL', begun_of(stream), id)
end

-- Settle a message whose run has ended. Replaying a dead letter can reactivate a run that ended in
-- error: the run keeps its other messages until then, or a join would wait forever. Returns whether
-- this message was kept.
local function abandon(stream, group, id, run)
  local kept = false
  if redis.call('HGET', run, 'outcome') == 'error' then
    for _, entry in ipairs(redis.call('XRANGE', stream, id, id)) do
      for i = 1, #entry[2], 2 do
        if entry[2][i] == 'e' then
          redis.call('HSET', run, 'kept:' .. id .. ' ' .. stream, entry[2][i + 1])
          kept = true
        end
      end
    end
  end
  settle(stream, group, id)
  return kept
end
