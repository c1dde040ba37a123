-- Calls whose outputs the run folder has. Returns how many are recorded then. ARGV: ttl, call...
if redis.call('HEXISTS', KEYS[1], 'sweep') == 0 then return -1 end
for i = 2, #ARGV do redis.call('SADD', KEYS[6], ARGV[i]) end
return redis.call('SCARD', KEYS[6])
