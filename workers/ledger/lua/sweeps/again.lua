-- Asks for a retry of a failed call, or for the next call of a conversation: 1 yes, 0 the budget is spent, -1 the sweep is
-- not open any more. A conversation that may not go on is given back at once: the others may need its part of the budget.
-- ARGV: ttl, token, call, 1 if its conversation goes on
if redis.call('HGET', keys.meta, 'state') ~= 'open' then return -1 end
local calls, cost, goes_on = number('max_calls'), number('max_cost'), ARGV[4] == '1'
local over = calls > 0 and started() >= calls
if cost > 0 and not over then over = spent() + (goes_on and next_cost(redis.call('HLEN', keys.held) - 1) or 0) >= cost end
if over then
  local holder = goes_on and redis.call('HGET', keys.held, ARGV[3])
  if holder then take_back(ARGV[3], holder, false) end
  return 0
end
-- If nobody has the call (another process made it meanwhile), the retry would be counted for ever.
if redis.call('HEXISTS', keys.held, ARGV[3]) == 1 then redis.call('HINCRBY', keys.retries, ARGV[3], 1) end
return 1
