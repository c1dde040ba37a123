-- A chunk's bytes, so that a worker without the file can compute it. Returns whether its message is to go out now:
-- when that is asked for, or the chunk was refused. ARGV: ttl, token, seq, blob, 1 when asked for
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return 0, true end
local other = driven_by_other(ARGV[2])
if other then return other, true end
if redis.call('HEXISTS', KEYS[3], ARGV[3]) == 1 then return 0 end
redis.call('HSET', KEYS[9], ARGV[3], ARGV[4])
local refused = redis.call('HDEL', KEYS[8], ARGV[3]) == 1
if ARGV[5] ~= '1' and not refused then return 0 end
redis.call('ZADD', KEYS[5], now_ms(), ARGV[3])
return 1
