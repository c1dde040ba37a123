-- A chunk this worker cannot read: it waits for the producer; or, where its bytes came while the worker tried, it is
-- given back, to be published again when it is seen to be lost. ARGV: ttl, seq, epoch, reason
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[3] then return 0 end
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 then return 0 end
redis.call('HDEL', KEYS[6], ARGV[2])
if redis.call('HEXISTS', KEYS[9], ARGV[2]) == 1 then return 0 end
redis.call('HSET', KEYS[8], ARGV[2], ARGV[4])
redis.call('ZREM', KEYS[5], ARGV[2])
return 1
