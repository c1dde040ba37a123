-- Takes recorded calls from the processes that hold them. ARGV: ttl, token, call...
for i = 3, #ARGV do
  if redis.call('SISMEMBER', keys.recorded, ARGV[i]) == 1 then let_go(ARGV[i]) end
end
return 1
