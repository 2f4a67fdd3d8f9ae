-- include: entries.lua
-- Calls that must not be made twice (begin_effect.lua): a hash, request -> token of the delivery
-- that started the call, its work stream, and a note for readers.
local function note_effect(effects, request, token, stream, note, life)
  redis.call('HSET', effects, request, token .. '\n' .. stream .. '\n' .. note)
  redis.call('PEXPIRE', effects, life)
end

-- Whether the worker that started the call still holds its delivery.
local function effect_is_held(line, group)
  local consumer, count, id, stream = string.match(line, '^(.*)/(%d+)/([^/\n]*)\n([^\n]*)\n')
  return consumer ~= nil and holds(stream, group, id, consumer, count)
end
