-- Counts calls whose outputs the run folder has as recorded. Returns how many are recorded then. ARGV: ttl, token, call...
if redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return -1 end
local other = refused()
if other then return other end
for i = 3, #ARGV do
  redis.call('SADD', keys.recorded, ARGV[i])
  talk_cost(ARGV[i], 0, 0)
  let_go(ARGV[i])
end
return redis.call('SCARD', keys.recorded)
