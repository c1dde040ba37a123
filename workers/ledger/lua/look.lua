-- How a run stands: {now, facts (flat; empty for an unknown run), suspects (flat: seq, reason), refused (flat), leases},
-- or who else drives it, where a driver looks. A suspect is a published chunk without a live lease for longer than the
-- grace. Counted is what is there: a key may have been lost.
-- ARGV: ttl, token, grace ms, 1 when it is the producer who looks (which keeps the run), longest backoff ms, run, key of
-- the runs
local now, attending = now_ms(), ARGV[4] == '1'
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return {now, {}, {}, {}, 0}, true end
if attending then
  local other = driven_by_other(ARGV[2])
  if other then return other, true end
  redis.call('HSET', ARGV[7], ARGV[6], redis.call('HGET', KEYS[1], 'queue') or '')
end
local found, live = {}, 0
local flight = redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')
for i = 1, #flight, 2 do
  local seq, at = flight[i], tonumber(flight[i + 1])
  local lease = lease_of(seq)
  if at > now + tonumber(ARGV[5]) then  -- written before the clock was set back: from now on, then
    at = now
    redis.call('ZADD', KEYS[5], now, seq)
  end
  if lease and lease.live then
    live = live + 1
  elseif at <= now - tonumber(ARGV[3]) then
    table.insert(found, seq)
    table.insert(found, lease and 'lease_died' or 'lost')
  end
end
local facts = {
  'committed', redis.call('HLEN', KEYS[3]), 'chunks', redis.call('LLEN', KEYS[2]), 'sealed', sealed() or '',
  'detached', redis.call('HEXISTS', KEYS[1], 'detached'), 'reported', redis.call('HEXISTS', KEYS[12], 'report'),
}
local names = {
  'state', 'reason', 'epoch', 'computed', 'records', 'dead', 'duplicates', 'divergent', 'skipped', 'stale',
  'reconciled', 'finals', 'driver', 'driver_at', 'failures', 'unserved',
}
for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
  if value then
    table.insert(facts, names[i])
    table.insert(facts, value)
  end
end
for i, value in ipairs(facts) do facts[i] = tostring(value) end
return {now, facts, found, redis.call('HGETALL', KEYS[8]), live}, not attending
