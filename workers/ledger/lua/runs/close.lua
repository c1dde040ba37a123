-- Move a run to another state, from one of those that may come before it; ended runs are counted once for each such
-- move. 'done' needs every chunk. Returns the state it is in then; nothing changes where a driver asks that is not the
-- run's (any more). Its driver keeps a run that is done until it has left the report, and hands over any other.
-- ARGV: ttl, token ('': somebody else's wish), state, reason, state before...
local state = redis.call('HGET', keys.meta, 'state')
if not state then return 'gone' end
local other = ARGV[2] ~= '' and driven()
if other then return other, true end
local legal = false
for i = 5, #ARGV do legal = legal or state == ARGV[i] end
if legal then
  if ARGV[3] == 'done' then
    local chunks = sealed()
    if not chunks or redis.call('HLEN', keys.digests) < chunks then return state end
  end
  end_run(ARGV[3], ARGV[4])
  state = ARGV[3]
end
if ARGV[2] ~= '' and state ~= 'done' then hand_over() end
return state
