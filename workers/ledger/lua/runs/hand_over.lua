-- A driver leaves its run to whoever comes next. ARGV: ttl, token
if redis.call('HGET', keys.meta, 'driver') ~= ARGV[2] then return 0, true end
hand_over()
return 1
