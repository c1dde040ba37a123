-- One chunk's answer, once: digest, part and counters together. Returns committed, duplicate, divergent, stale or gone.
-- ARGV: ttl, seq, epoch, digest, part, records, totals key, totals label
local seq = ARGV[2]
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 'gone' end
if epoch ~= ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'stale', 1)
  return 'stale'
end
local stored = redis.call('HGET', KEYS[3], seq)
if stored == ARGV[4] then
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
redis.call('HINCRBY', ARGV[7], 'chunks' .. ARGV[8], 1)
redis.call('HINCRBY', ARGV[7], 'records' .. ARGV[8], ARGV[6])
return 'committed'
