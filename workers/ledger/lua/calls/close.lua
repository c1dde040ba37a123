-- Move a sweep to another state, from one of those that may come before it. Whoever drives nothing may do so, too.
-- Returns the state it is in then. ARGV: ttl, token, state, reason, state before...
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 'gone' end
local other = ARGV[2] ~= '' and driven()
if other then return other end
for i = 5, #ARGV do
  if state == ARGV[i] then
    redis.call('HSET', KEYS[1], 'state', ARGV[3], 'reason', ARGV[4])
    return ARGV[3]
  end
end
return state
