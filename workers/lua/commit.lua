-- One chunk's answer, once: digest, part and counters together. Returns committed, duplicate, divergent, stale or gone.
-- An answer with dead records came by a ruling, so it never contradicts another one: the first stays.
-- ARGV: ttl, seq, epoch, digest, part, records, totals key, totals label, dead records
local seq = ARGV[2]
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 'gone' end
if epoch ~= ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'stale', 1)
  return 'stale'
end
local stored = redis.call('HGET', KEYS[3], seq)
local dead = tonumber(ARGV[9])
if stored and (stored == ARGV[4] or dead > 0 or note('dead', seq) > 0) then
  redis.call('HINCRBY', KEYS[1], 'duplicates', 1)
  redis.call('HINCRBY', ARGV[7], 'duplicates' .. ARGV[8], 1)
  return 'duplicate'
end
if stored then
  redis.call('HSET', KEYS[10], seq .. ' ' .. ARGV[4], ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'divergent', 1)
  redis.call('HINCRBY', ARGV[7], 'divergent' .. ARGV[8], 1)
  redis.call('HSET', KEYS[1], 'state', 'failed', 'reason', 'divergent: two different answers for chunk ' .. seq)
  return 'divergent'
end
if redis.call('HGET', KEYS[1], 'state') ~= 'open' then return 'closed' end
redis.call('HSET', KEYS[3], seq, ARGV[4])
redis.call('HSET', KEYS[4], seq, ARGV[5])
redis.call('ZREM', KEYS[5], seq)
redis.call('HDEL', KEYS[6], seq)
redis.call('HDEL', KEYS[8], seq)
redis.call('HDEL', KEYS[9], seq)
redis.call('HINCRBY', KEYS[1], 'committed', 1)
redis.call('HINCRBY', KEYS[1], 'computed', 1)
redis.call('HINCRBY', KEYS[1], 'records', ARGV[6])
if dead > 0 then
  redis.call('HSET', KEYS[7], 'dead ' .. seq, dead)
  redis.call('HINCRBY', KEYS[1], 'dead', dead)
  redis.call('HINCRBY', ARGV[7], 'dead' .. ARGV[8], dead)
end
-- What was counted before a retry is not counted again.
local counted = tonumber(redis.call('HGET', KEYS[10], 'counted ' .. seq) or '0')
redis.call('HINCRBY', ARGV[7], 'chunks' .. ARGV[8], 1)
redis.call('HINCRBY', ARGV[7], 'records' .. ARGV[8], math.max(0, tonumber(ARGV[6]) - dead - counted))
return 'committed'
