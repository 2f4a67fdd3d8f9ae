-- include: base.lua
-- The keys of a run, all with the same hash tag, and their lives.

-- Another key of a run: its journal, its signals …
local function run_key(run, kind)
  return (string.gsub(run, '}:run:', '}:' .. kind .. ':', 1))
end

-- The key by which its caller requests the run again lives as long as the run. Its digest is a
-- field of the run's hash; the gateway writes the key.
local function keep_caller_key(digest, life)
  if digest and digest ~= '' then
    redis.call('PEXPIRE', of_shard('idempotency') .. ':' .. digest, life)
  end
end

-- All keys of a live run last until its deadline plus the retention.
local function keep_run(run, life)
  for _, kind in ipairs({'run', 'journal', 'log', 'usage', 'signals'}) do
    redis.call('PEXPIRE', run_key(run, kind), life)
  end
  keep_caller_key(redis.call('HGET', run, 'idempotency'), life)
  for _, field in ipairs(redis.call('HKEYS', run)) do
    if string.sub(field, 1, 6) == 'asked:' then
      for request in string.gmatch(redis.call('HGET', run, field), '[^\n]+') do
        if redis.call('PTTL', request) < life then redis.call('PEXPIRE', request, life) end
      end
    end
  end
end

-- The lists of runs go back as far as the longest run that started when it was admitted may last.
-- Listed runs stay where they are.
local function list_run(account, run_id, now, retention)
  local function list(runs)
    redis.call('ZADD', runs, 'NX', now, run_id)
    if renew(runs, STREAM_LIFE) then
      redis.call('ZREMRANGEBYSCORE', runs, '-inf', now - LONGEST_RUN - retention)
    end
  end
  list(of_shard('runs'))
  if account and account ~= '' then list(of_shard('runs-of') .. ':' .. account) end
end
