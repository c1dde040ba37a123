-- Refuses a chunk that this worker cannot read: it waits for the producer. If its bytes came meanwhile, it is given back,
-- and published again once it counts as lost. If another worker has it by now, nothing changes.
-- ARGV: ttl, token, seq, epoch, reason, worker
local seq, epoch, reason, worker = unpack(ARGV, 3, 6)
if redis.call('HGET', keys.meta, 'epoch') ~= epoch then return 0 end
if redis.call('HEXISTS', keys.digests, seq) == 1 then return 0 end
local lease = lease_of(seq)
if lease and lease.live and lease.worker ~= worker then return 0 end
redis.call('HDEL', keys.leases, seq)
if redis.call('HEXISTS', keys.blobs, seq) == 1 then return 0 end
redis.call('HSET', keys.refused, seq, reason)
redis.call('ZREM', keys.flight, seq)
return 1
