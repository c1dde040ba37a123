-- Cases that are decided get no more calls, and those that are open again get them.
-- ARGV: ttl, token, 'halt' or 'go', case...
if redis.call('HEXISTS', KEYS[1], 'sweep') == 0 then return -1 end
local other = driven()
if other then return other end
for i = 4, #ARGV do
  if ARGV[3] == 'halt' then
    redis.call('SADD', KEYS[8], ARGV[i])
  elseif redis.call('SREM', KEYS[8], ARGV[i]) == 1 then
    redis.call('HSET', KEYS[1], 'cursor', 0)
  end
end
return redis.call('SCARD', KEYS[8])
