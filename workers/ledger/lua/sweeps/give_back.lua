-- Gives back calls that a process does not make; a process that leaves gives back all its calls.
-- ARGV: ttl, token, holder, its tally ('name tally' or ''), 1 if it leaves, call...
store_tally(ARGV[4])
local given = 0
for i = 6, #ARGV do
  if redis.call('HGET', keys.held, ARGV[i]) == ARGV[3] then
    take_back(ARGV[i], ARGV[3], false)
    given = given + 1
  end
end
if ARGV[5] == '1' then
  redis.call('ZREM', keys.holders, ARGV[3])
  redis.call('SREM', keys.awaited, ARGV[3])
  local held = redis.call('HGETALL', keys.held)
  for i = 1, #held, 2 do
    if held[i + 1] == ARGV[3] then
      take_back(held[i], ARGV[3], true)
      given = given + 1
    end
  end
end
return given
