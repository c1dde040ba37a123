-- A chunk this worker cannot read: it waits for the producer; or, where its bytes came while the worker tried, it is
-- given back, to be published again when it is seen to be lost. ARGV: ttl, token, seq, epoch, reason
local seq, epoch, reason = unpack(ARGV, 3, 5)
if redis.call('HGET', keys.meta, 'epoch') ~= epoch then return 0 end
if redis.call('HEXISTS', keys.digests, seq) == 1 then return 0 end
redis.call('HDEL', keys.leases, seq)
if redis.call('HEXISTS', keys.blobs, seq) == 1 then return 0 end
redis.call('HSET', keys.refused, seq, reason)
redis.call('ZREM', keys.flight, seq)
return 1
