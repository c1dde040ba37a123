-- Move a sweep on from 'open' (or, to 'done' and 'cancelled', from any state); returns the state it is in then.
-- ARGV: ttl, state, reason
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 'gone' end
if state ~= 'open' and ARGV[2] ~= 'done' and ARGV[2] ~= 'cancelled' then return state end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'reason', ARGV[3])
return ARGV[2]
