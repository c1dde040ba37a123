-- Notes since when no living worker can compute a run; the time starts again whenever an answer is committed.
-- Returns for how many ms. ARGV: ttl, token, 1 while no worker can
if ARGV[3] ~= '1' then
  redis.call('HDEL', keys.meta, 'unserved')
  return 0, true
end
local now, committed = now_ms(), redis.call('HGET', keys.meta, 'committed') or '0'
local since, at = string.match(redis.call('HGET', keys.meta, 'unserved') or '', '^(%d+) (%d+)$')
if since and at == committed and tonumber(since) <= now then return now - tonumber(since), true end
redis.call('HSET', keys.meta, 'unserved', now .. ' ' .. committed)
return 0, true
