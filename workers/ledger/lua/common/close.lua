-- Moves a run or sweep to another state, if its present one may come before. Returns its state then; nothing changes if a
-- process asks that does not drive it (any more). The preludes have what differs: whether it `lacks` something for a state,
-- how to `set_state`, and whether its driver `keeps` it then.
-- ARGV: ttl, token ('': not the driver), state, reason, state before...
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
