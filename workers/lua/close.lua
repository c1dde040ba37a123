-- Move a run from 'open' to another state, once. 'done' needs every chunk. Returns the state it is in then; nothing
-- changes where a driver asks that is not the run's (any more). Its driver keeps a run that is done until it has left
-- the report, and hands over any other. ARGV: ttl, token ('': somebody else's wish), state, reason
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return state end
local other = ARGV[2] ~= '' and driven_by_other(ARGV[2])
if other then return other, true end
if state == 'open' then
  if ARGV[3] == 'done' then
    local chunks = sealed()
    if not chunks or redis.call('HLEN', KEYS[3]) < chunks then return state end
  end
  end_run(ARGV[3], ARGV[4])
  state = ARGV[3]
end
if ARGV[2] ~= '' and state ~= 'done' then hand_over() end
return state
