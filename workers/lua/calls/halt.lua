-- Cases that are decided get no more calls, and those that are open again get them. ARGV: ttl, 'halt' or 'go', case...
for i = 3, #ARGV do
  if ARGV[2] == 'halt' then
    redis.call('SADD', KEYS[8], ARGV[i])
  elseif redis.call('SREM', KEYS[8], ARGV[i]) == 1 then
    redis.call('HSET', KEYS[1], 'cursor', 0)
  end
end
return redis.call('SCARD', KEYS[8])
