-- Move a run from 'open' to another state, once. 'done' needs every chunk. Returns the state it is in then.
-- ARGV: ttl, state, reason
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'open' then return state end
if ARGV[2] == 'done' then
  local seal = redis.call('HGET', KEYS[1], 'seal')
  if not seal or redis.call('HLEN', KEYS[3]) < tonumber(redis.call('HGET', KEYS[1], 'chunks')) then return state end
end
end_run(ARGV[2], ARGV[3])
return ARGV[2]
