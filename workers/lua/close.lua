-- Move a run to another state, from one of those that may come before it; ended runs are counted once for each such
-- move. 'done' needs every chunk. Returns the state it is in then. ARGV: ttl, state, reason, state before...
local state = redis.call('HGET', KEYS[1], 'state')
local legal = false
for i = 4, #ARGV do legal = legal or state == ARGV[i] end
if not legal then return state end
if ARGV[2] == 'done' then
  local seal = redis.call('HGET', KEYS[1], 'seal')
  if not seal or redis.call('HLEN', KEYS[3]) < tonumber(redis.call('HGET', KEYS[1], 'chunks')) then return state end
end
end_run(ARGV[2], ARGV[3])
return ARGV[2]
