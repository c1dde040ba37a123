-- A process gives back calls that it does not make; one that leaves gives back all it has.
-- ARGV: ttl, token, holder, 1 when it leaves, (call, attempts that were counted and not made)...
local given = 0
for i = 5, #ARGV, 2 do
  if redis.call('HGET', KEYS[5], ARGV[i]) == ARGV[3] then
    take_back(ARGV[i], ARGV[3], false)
    redis.call('HINCRBY', KEYS[1], 'started', -ARGV[i + 1])
    given = given + 1
  end
end
if ARGV[4] == '1' then
  redis.call('ZREM', KEYS[4], ARGV[3])
  local held = redis.call('HGETALL', KEYS[5])
  for i = 1, #held, 2 do
    if held[i + 1] == ARGV[3] then
      take_back(held[i], ARGV[3], true)
      given = given + 1
    end
  end
end
return given
