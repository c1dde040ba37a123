-- Holds cases back, whose calls are not made then, or lets them go on. Returns how many are held back, -1 for an unknown
-- sweep. ARGV: ttl, token, 'hold' or 'go', case...
if redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return -1 end
for i = 4, #ARGV do
  if ARGV[3] == 'hold' then
    redis.call('SADD', keys.aside, ARGV[i])
  elseif redis.call('SREM', keys.aside, ARGV[i]) == 1 then
    -- The cursor has passed calls of this case meanwhile.
    redis.call('HSET', keys.meta, 'cursor', 0)
  end
end
return redis.call('SCARD', keys.aside)
