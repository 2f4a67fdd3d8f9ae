-- include: effects.lua
-- List started calls without a recorded outcome.
-- KEYS: effects
-- ARGV: group, cursor, how many to check
-- Returns the next cursor ('0' at the end), then per call: its request's key, 1 if a worker is
--       making it, else 0, the note about it.
local scanned = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local result = {scanned[1]}
for i = 1, #scanned[2], 2 do
  local line = scanned[2][i + 1]
  result[#result + 1] = scanned[2][i]
  result[#result + 1] = effect_is_held(line, ARGV[1]) and 1 or 0
  result[#result + 1] = string.match(line, '^[^\n]*\n[^\n]*\n(.*)$')
end
return result
