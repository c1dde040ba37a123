-- A driver lets go of its sweep: the next one need not wait until it has been silent for long. ARGV: ttl, token
if ARGV[2] == '' or redis.call('HGET', KEYS[1], 'driver') ~= ARGV[2] then return 0, true end
redis.call('SREM', KEYS[13], ARGV[2])
return redis.call('HDEL', KEYS[1], 'driver', 'driver_at'), true
