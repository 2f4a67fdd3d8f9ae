-- Equal requests in flight: one of them is made, the others wait for what it is answered.
-- KEYS: flight, landing of the caller
-- ARGV: what the caller does (`board`, `renew`, `land`), the caller's token, ms for which a flight is
--       its leader's without being renewed; at a landing: its kind, what was answered, its life ms
-- Returns the token of who leads now, '' for nobody.
-- Race closed: two requests that both find nobody leading; a leader that dies, whose hold ends by
-- itself; one that was paused, and lands what is led by another now: that flight goes on.
local leader = redis.call('GET', KEYS[1])
if ARGV[1] == 'board' and not leader then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return ARGV[2]
end
if leader == ARGV[2] and ARGV[1] == 'renew' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
if ARGV[1] == 'land' then
  if leader == ARGV[2] then
    redis.call('DEL', KEYS[1])
    leader = false
  end
  redis.call('XADD', KEYS[2], '*', 'kind', ARGV[4], 'answer', ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
return leader or ''
