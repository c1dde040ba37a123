-- Notes that attempts of calls begin: if the process dies, only these count as lost. Returns the calls that it may make:
-- those that it still holds, of an open sweep, and of cases that nobody holds back.
-- ARGV: ttl, token, holder, (call, number of its attempt)...
local may = {}
if redis.call('HGET', keys.meta, 'state') ~= 'open' then return may, true end
local cases = number('cases')
for i = 4, #ARGV, 2 do
  if redis.call('HGET', keys.held, ARGV[i]) == ARGV[3]
    and redis.call('SISMEMBER', keys.aside, ARGV[i] % cases) == 0 then
    redis.call('HSET', keys.begun, ARGV[i], ARGV[i + 1])
    redis.call('HSETNX', keys.used, 'at ' .. ARGV[i], now_ms())
    table.insert(may, ARGV[i])
  end
end
return may
