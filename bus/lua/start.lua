-- include: base.lua
-- function: admit.lua
-- function: request.lua
-- function: mark.lua
-- Admit a run whose first step this process has already started: admission, the step's request and
-- the mark of its paid call, in sequence, while the process reads its own messages.
-- KEYS: those of admit (one message, no steps, no joins), those of request (none: it has no
--       request)
-- ARGV: numbers of admit's keys and arguments, of request's keys and arguments, then the arguments
--       of admit and of request, then none, or of mark: the number of the call, its tokens and
--       micro-dollars, and its ledger line, in two parts, with the entry's id between them
-- Returns what admit, request and mark return, as far as they were called: each only if the process
--       has read the previous one's message.
-- Race closed: those of the three, in which nothing can now come between. A crash leaves the same
-- state as a crash after the third one: a message that waits for its lease to end, with its mark.
local key, arg = 0, 4
local function part(keys, args)
  local k, a = {}, {}
  for i = 1, keys do k[i] = KEYS[key + i] end
  for i = 1, args do a[i] = ARGV[arg + i] end
  key, arg = key + keys, arg + args
  return k, a
end
local admit_keys, admit_args = part(tonumber(ARGV[1]), tonumber(ARGV[2]))
local request_keys, request_args = part(tonumber(ARGV[3]), tonumber(ARGV[4]))

-- The entry's id, if the entry that was read is this same message.
local function own(read, body)
  if not read then return nil end
  local entry = read[2][1]
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'e' and entry[2][i + 1] == body then return entry[1] end
  end
  return nil
end

local results = {admit(admit_keys, admit_args)}
if #request_keys == 0 or results[1][1] ~= 'admitted' then return results end
if not own(results[1][2], admit_args[#admit_args - 1]) then return results end
results[2] = request(request_keys, request_args)
local id = own(results[2][3], request_args[1])
if #ARGV == arg or not id then return results end
local run = request_keys[4]
local usage = string.gsub(run, '}:run:', '}:usage:', 1)
local line = ARGV[arg + 4]
if #ARGV > arg + 4 then line = line .. id .. ARGV[arg + 5] end
results[3] = mark({request_keys[2], request_keys[1], run, usage, of_shard('ledger')},
  {'workers', id, request_args[5], '1', request_args[4], ARGV[arg + 1], ARGV[arg + 2],
    ARGV[arg + 3], line})
return results
