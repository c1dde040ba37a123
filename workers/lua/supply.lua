-- A chunk's bytes, so that a worker without the file can compute it. ARGV: ttl, seq, blob, 1 when published now
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 then return 0 end
redis.call('HSET', KEYS[9], ARGV[2], ARGV[3])
redis.call('HDEL', KEYS[8], ARGV[2])
if ARGV[4] == '1' then redis.call('ZADD', KEYS[5], now_ms(), ARGV[2]) end
return 1
