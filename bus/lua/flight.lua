-- Equal requests in flight: one of them is made, the others wait for its answer.
-- KEYS: flight, landing of the caller
-- ARGV: the caller's action (`board`, `renew`, `land`), the caller's token, ms for which a flight
--       belongs to its leader without being renewed; at a landing: its kind, the answer, its life
--       ms
-- Returns the token of the present leader, '' for none.
-- Race closed: two requests that both find no leader; a leader that dies, whose claim expires; a
-- leader that was paused, and lands a flight that another one leads now: that flight continues.
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
