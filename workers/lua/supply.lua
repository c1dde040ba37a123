-- A chunk's bytes, so that a worker without the file can compute it. Returns whether its message is to go out now:
-- when that is asked for, or the chunk was refused. ARGV: ttl, seq, blob, 1 when asked for
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 then return 0 end
redis.call('HSET', KEYS[9], ARGV[2], ARGV[3])
local refused = redis.call('HDEL', KEYS[8], ARGV[2]) == 1
if ARGV[4] ~= '1' and not refused then return 0 end
redis.call('ZADD', KEYS[5], now_ms(), ARGV[2])
return 1
