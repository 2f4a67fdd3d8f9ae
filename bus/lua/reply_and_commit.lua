-- function: reply.lua
-- function: commit.lua
-- Answer requests, then commit the steps that were waiting for them in this process.
-- KEYS: those of each reply, those of commit
-- ARGV: number of replies, their numbers of arguments, then their arguments, then those of commit
-- Returns the words of the replies, then those of the commits, which are applied only if every
--       reply was 'ok' or 'already'.
-- Race closed: a step that used an answer which does not count, since another worker has the
-- request now, is not committed. Safe to repeat, as both are.
local REPLY_KEYS = 5
local replies = tonumber(ARGV[1])
local key, arg = 0, 1 + replies
local function part(keys, args)
  local k, a = {}, {}
  for i = 1, keys do k[i] = KEYS[key + i] end
  for i = 1, args do a[i] = ARGV[arg + i] end
  key, arg = key + keys, arg + args
  return k, a
end
local words, all = {}, true
for n = 1, replies do
  words[n] = reply(part(REPLY_KEYS, tonumber(ARGV[1 + n])))
  all = all and (words[n] == 'ok' or words[n] == 'already')
end
if all then
  for _, word in ipairs(commit(part(#KEYS - key, #ARGV - arg))) do words[#words + 1] = word end
end
return words
