-- Move a run or sweep to another state, from one of those that may come before it. Returns the state it is in then; nothing
-- changes where a driver asks that does not drive it (any more). What differs between the two stands in their preludes: what
-- it `lacks` for a state, how to `set_state`, and whether its driver `keeps` it then.
-- ARGV: ttl, token ('': somebody else's wish), state, reason, state before...
local state = redis.call('HGET', keys.meta, 'state')
if not state then return 'gone' end
local other = ARGV[2] ~= '' and driven()
if other then return other, true end
local legal = false
for i = 5, #ARGV do legal = legal or state == ARGV[i] end
if legal then
  if lacks(ARGV[3]) then return state end
  set_state(ARGV[3], ARGV[4])
  state = ARGV[3]
end
if ARGV[2] ~= '' and not keeps(state) then release() end
return state
