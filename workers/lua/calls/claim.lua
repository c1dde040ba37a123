-- Calls for a process to make, and a sign of its life. Returns {state, call...}; 'gone' for an unknown sweep.
-- One that is not open leaves the list of those that are. ARGV: ttl, holder, lease ms, most, key of that list, run
local state = redis.call('HGET', KEYS[1], 'state')
if state ~= 'open' then redis.call('HDEL', ARGV[5], ARGV[6]) end
if not state then return {'gone'} end
local now, lease = now_ms(), tonumber(ARGV[3])
if now - number('touched') > lease / 2 then
  -- Nobody was heard of for a while: the server was away, so nobody is taken for dead because of that.
  for _, holder in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do redis.call('ZADD', KEYS[4], now + lease, holder) end
end
redis.call('HSET', KEYS[1], 'touched', now)
redis.call('ZADD', KEYS[4], now + lease, ARGV[2])
reclaim()
-- With nothing in flight, asking again and again does not keep the sweep.
local function idle() return redis.call('HLEN', KEYS[5]) == 0 end
local answer = {state}
local cases, total = number('cases'), number('total')
local alone = number('unattended_ms') > 0 and now - number('attended') > number('unattended_ms')
if state ~= 'open' or alone or redis.call('HLEN', KEYS[2]) < cases then return answer, idle() end
local most = math.min(tonumber(ARGV[4]), room())
while #answer <= most do
  local call = next_call(cases, total)
  if not call then break end
  redis.call('HSET', KEYS[5], call, ARGV[2])
  redis.call('HINCRBY', KEYS[1], 'started', 1)
  table.insert(answer, call)
end
local busy = redis.call('HLEN', KEYS[5])
if #answer == 1 and tonumber(ARGV[4]) > 0 and busy == 0 and room() <= 0 and next_call(cases, total) then
  local untold = number('max_cost') > 0 and number('spent') == 0
  redis.call('HSET', KEYS[1], 'state', 'spent', 'reason',
    untold and 'the target tells no tokens, so its cost is not known' or 'the budget is spent')
  return {'spent'}
end
return answer, #answer == 1 and idle()
