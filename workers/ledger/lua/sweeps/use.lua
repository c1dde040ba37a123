-- Keeps what calls used of their cases' budgets, as the process counts it that gives them back.
-- ARGV: ttl, token, holder, (call, "tries seconds cost")...
for i = 4, #ARGV, 2 do
  if redis.call('HGET', keys.held, ARGV[i]) == ARGV[3] then redis.call('HSET', keys.used, ARGV[i], ARGV[i + 1]) end
end
return 1
