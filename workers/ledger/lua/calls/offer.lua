-- Prompts of cases. Returns how many there are then. ARGV: ttl, token, (case, prompt)...
if redis.call('HEXISTS', KEYS[1], 'sweep') == 0 then return -1 end
local other = driven()
if other then return other end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return redis.call('HLEN', KEYS[2])
