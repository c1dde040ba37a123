-- Calls whose outputs the run folder has: nobody makes them. Returns how many are recorded then. ARGV: ttl, token, call...
if redis.call('HEXISTS', KEYS[1], 'sweep') == 0 then return -1 end
local other = driven()
if other then return other end
for i = 3, #ARGV do
  redis.call('SADD', KEYS[6], ARGV[i])
  redis.call('HDEL', KEYS[5], ARGV[i])
  redis.call('HDEL', KEYS[12], ARGV[i])
end
return redis.call('SCARD', KEYS[6])
