-- Stores prompts of cases. Returns how many there are then. ARGV: ttl, token, (case, prompt)...
if redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return -1 end
local other = refused()
if other then return other end
for i = 3, #ARGV, 2 do redis.call('HSET', keys.prompts, ARGV[i], ARGV[i + 1]) end
return redis.call('HLEN', keys.prompts)
