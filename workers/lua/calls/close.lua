-- Move a sweep to another state, from one of those that may come before it. Returns the state it is in then.
-- ARGV: ttl, state, reason, state before...
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 'gone' end
for i = 4, #ARGV do
  if state == ARGV[i] then
    redis.call('HSET', KEYS[1], 'state', ARGV[2], 'reason', ARGV[3])
    return ARGV[2]
  end
end
return state
