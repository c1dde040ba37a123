-- How a run stands: {now, meta (flat; empty for an unknown run), suspects (flat: seq, reason), refused (flat), leases}.
-- A suspect is a published chunk without a live lease for longer than the grace.
-- ARGV: ttl, grace ms, 1 when it is the producer who looks, which keeps the run
local now = now_ms()
local suspects, live = {}, 0
for _, seq in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')) do table.insert(suspects, seq) end
local found = {}
for i = 1, #suspects, 2 do
  local lease = lease_of(suspects[i])
  if lease and lease.deadline > now then
    live = live + 1
  elseif tonumber(suspects[i + 1]) <= now - tonumber(ARGV[2]) then
    table.insert(found, suspects[i])
    table.insert(found, lease and 'lease_died' or 'lost')
  end
end
local meta = {}
if redis.call('HEXISTS', KEYS[1], 'header') == 1 then meta = redis.call('HGETALL', KEYS[1]) end
for i = 1, #meta, 2 do
  if meta[i] == 'header' then meta[i + 1] = '' end
end
return {now, meta, found, redis.call('HGETALL', KEYS[8]), live}, ARGV[3] ~= '1'
