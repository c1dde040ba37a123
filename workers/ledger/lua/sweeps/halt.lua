-- Stops the calls of decided cases, or lets calls of reopened cases go on.
-- ARGV: ttl, token, 'halt' or 'go', case...
if redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return -1 end
local other = refused()
if other then return other end
for i = 4, #ARGV do
  if ARGV[3] == 'halt' then
    redis.call('SADD', keys.halted, ARGV[i])
  elseif redis.call('SREM', keys.halted, ARGV[i]) == 1 then
    -- The cursor has passed calls of this case while it was halted.
    redis.call('HSET', keys.meta, 'cursor', 0)
  end
end
return redis.call('SCARD', keys.halted)
