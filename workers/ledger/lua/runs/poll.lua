-- A run's status: {now, facts (flat; empty for an unknown run), suspects (flat: seq, reason), refused (flat), leases}.
-- A suspect is a published chunk without a live lease for longer than the grace. Counts come from the keys themselves,
-- since one may have been lost.
-- ARGV: ttl, token, run, 1 if its driver polls (which keeps the run), grace ms, longest backoff ms, names of stored facts
local run, attending = ARGV[3], ARGV[4] == '1'
local now, grace_ms, backoff_ms = now_ms(), tonumber(ARGV[5]), tonumber(ARGV[6])
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return {now, {}, {}, {}, 0}, true end
if attending then
  local other = driven()
  if other then return other, true end
  listed(run)
end
local suspects, live = {}, 0
local flight = redis.call('ZRANGE', keys.flight, 0, -1, 'WITHSCORES')
for i = 1, #flight, 2 do
  local seq, at = flight[i], tonumber(flight[i + 1])
  local lease = lease_of(seq)
  if at > now + backoff_ms then  -- written before the clock was set back: count from now on
    at = now
    redis.call('ZADD', keys.flight, now, seq)
  end
  if lease and lease.live then
    live = live + 1
  elseif at <= now - grace_ms then
    table.insert(suspects, seq)
    table.insert(suspects, lease and 'lease_died' or 'lost')
  end
end
local facts = {
  'committed', redis.call('HLEN', keys.digests), 'chunks', redis.call('LLEN', keys.chunks), 'sealed', sealed() or '',
  'keyed', redis.call('HEXISTS', keys.key, 'key'),
  'detached', redis.call('HEXISTS', keys.meta, 'detached'), 'reported', redis.call('HEXISTS', keys.final, 'report'),
}
local names = {'driver', 'driver_at', 'unserved', unpack(ARGV, 7)}
for i, value in ipairs(redis.call('HMGET', keys.meta, unpack(names))) do
  if value then
    table.insert(facts, names[i])
    table.insert(facts, value)
  end
end
for i, value in ipairs(facts) do facts[i] = tostring(value) end
return {now, facts, suspects, redis.call('HGETALL', keys.refused), live}, not attending
