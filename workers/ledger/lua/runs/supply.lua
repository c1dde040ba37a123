-- Stores a chunk's bytes, so that a worker without the file can compute it. Returns 1 if its message must be sent now: on
-- request, or if the chunk was refused. ARGV: ttl, token, seq, blob, 1 to publish
local seq, blob, publish = unpack(ARGV, 3, 5)
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return 0, true end
local other = driven()
if other then return other, true end
if redis.call('HEXISTS', keys.digests, seq) == 1 then return 0 end
redis.call('HSET', keys.blobs, seq, blob)
local refused = redis.call('HDEL', keys.refused, seq) == 1
if publish ~= '1' and not refused then return 0 end
redis.call('ZADD', keys.flight, now_ms(), seq)
return 1
