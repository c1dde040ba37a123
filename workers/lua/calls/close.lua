-- Move a sweep on: from 'open' to any state, from one that could go on to 'done' or 'cancelled'. Whoever drives nothing
-- may do so, too. Returns the state it is in then. ARGV: ttl, token, state, reason
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 'gone' end
local other = ARGV[2] ~= '' and driven()
if other then return other end
local over = state == 'done' or state == 'cancelled'
if over or (state ~= 'open' and ARGV[3] ~= 'done' and ARGV[3] ~= 'cancelled') then return state end
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'reason', ARGV[4])
return ARGV[3]
