-- Notes that attempts of calls begin: if the process dies, only these count as lost. Returns the calls that it may make:
-- those that it still holds, of an open sweep.
-- ARGV: ttl, token, holder, 1 if cases have a budget, (call, number of its attempt)...
local may = {}
if redis.call('HGET', keys.meta, 'state') ~= 'open' then return may, true end
for i = 5, #ARGV, 2 do
  if redis.call('HGET', keys.held, ARGV[i]) == ARGV[3] then
    redis.call('HSET', keys.begun, ARGV[i], ARGV[i + 1])
    if ARGV[4] == '1' then redis.call('HSETNX', keys.used, 'at ' .. ARGV[i], now_ms()) end
    table.insert(may, ARGV[i])
  end
end
return may
