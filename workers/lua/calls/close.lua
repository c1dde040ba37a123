-- Move a sweep on: from 'open' to any state, from one that could go on to 'done' or 'cancelled'. Returns the state it is
-- in then. ARGV: ttl, state, reason
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 'gone' end
local over = state == 'done' or state == 'cancelled'
if over or (state ~= 'open' and ARGV[2] ~= 'done' and ARGV[2] ~= 'cancelled') then return state end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'reason', ARGV[3])
return ARGV[2]
