-- Asks for a retry of a failed call: 1 yes, 0 the budget is spent, -1 the sweep is not open any more.
-- ARGV: ttl, token, call
if redis.call('HGET', keys.meta, 'state') ~= 'open' then return -1 end
local calls, cost = number('max_calls'), number('max_cost')
if calls > 0 and started() >= calls then return 0 end
if cost > 0 and spent() >= cost then return 0 end
-- If nobody has the call (another process made it meanwhile), the retry would be counted for ever.
if redis.call('HEXISTS', keys.held, ARGV[3]) == 1 then redis.call('HINCRBY', keys.retries, ARGV[3], 1) end
return 1
