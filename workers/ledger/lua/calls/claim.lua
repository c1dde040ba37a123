-- Calls for a process to make, and a sign of its life. Returns {state, generation, calls to tell of again, call...}; 'gone'
-- for an unknown sweep. A process that has not named its calls to this generation is to do so. A sweep that is not open
-- leaves the list of those that are for that of those that are closed, which forgets them when they expire.
-- ARGV: ttl, token, holder, what it has made ('name tally' or ''), lease ms, most, key of that list, run, how many calls it
-- names as its own (-1: it names none), those, and those that it recorded lately
local state = redis.call('HGET', KEYS[1], 'state')
local closed = ARGV[7] .. ':closed'
if state ~= 'open' and redis.call('HDEL', ARGV[7], ARGV[8]) == 1 and state then
  for _, run in ipairs(redis.call('ZRANGEBYSCORE', closed, 0, now_ms())) do redis.call('ZREM', closed, run) end
  redis.call('ZADD', closed, now_ms() + tonumber(ARGV[1]), ARGV[8])
  redis.call('PEXPIRE', closed, ARGV[1])
end
if not state then return {'gone', 0, {}} end
notice()
told(ARGV[4])
local now, lease, me = now_ms(), tonumber(ARGV[5]), ARGV[3]
if now - number('touched') > lease / 2 then
  -- Nobody was heard of for a while: the server was away, so nobody is taken for dead because of that.
  for _, holder in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do redis.call('ZADD', KEYS[4], now + lease, holder) end
end
redis.call('HSET', KEYS[1], 'touched', now)
if number('lease') < lease then redis.call('HSET', KEYS[1], 'lease', lease) end
redis.call('ZADD', KEYS[4], now + lease, me)
reclaim()
-- A process has what it names, and nothing else: an answer that never arrived, or a server that came back older than it
-- was, gave it calls that it does not know of. What it recorded and the ledger has lost is told again, not called again.
local named, untold = tonumber(ARGV[9]), {}
if named >= 0 then
  local mine, recent = {}, {}
  for i = 10, 9 + named do mine[ARGV[i]] = true end
  for i = 10 + named, #ARGV do
    recent[ARGV[i]] = true
    if redis.call('SISMEMBER', KEYS[6], ARGV[i]) == 0 then
      table.insert(untold, ARGV[i])
      redis.call('HSETNX', KEYS[5], ARGV[i], me) -- nobody else makes it meanwhile
    end
  end
  local held = redis.call('HGETALL', KEYS[5])
  adopt(held)
  for i = 1, #held, 2 do
    if held[i + 1] == me and not mine[held[i]] and not recent[held[i]] then take_back(held[i], me, false) end
    mine[held[i]] = nil
  end
  for call in pairs(mine) do
    if redis.call('SISMEMBER', KEYS[6], call) == 0 then
      redis.call('HSET', KEYS[5], call, me)
      redis.call('SREM', KEYS[9], me .. ' ' .. call)
    end
  end
  redis.call('SREM', KEYS[13], me)
end
-- With nothing in flight, asking again and again does not keep the sweep.
local function idle() return redis.call('HLEN', KEYS[5]) == 0 end
local answer = {state, number('generation'), untold}
local cases, total = number('cases'), number('total')
local alone = number('unattended_ms') > 0 and now - heard('attended') > number('unattended_ms')
if state ~= 'open' or alone or redis.call('HLEN', KEYS[2]) < cases or unsettled() then return answer, idle() end
local most = math.min(tonumber(ARGV[6]), room())
while #answer <= most + 2 do
  local call = next_call(cases, total)
  if not call then break end
  redis.call('HSET', KEYS[5], call, me)
  table.insert(answer, call)
end
local busy = redis.call('HLEN', KEYS[5])
if #answer == 3 and tonumber(ARGV[6]) > 0 and busy == 0 and room() <= 0 and next_call(cases, total) then
  local costless = number('max_cost') > 0 and number('spent') == 0
  redis.call('HSET', KEYS[1], 'state', 'spent', 'reason',
    costless and 'the target tells no tokens, so its cost is not known' or 'the budget is spent')
  answer[1] = 'spent'
  return answer
end
return answer, #answer == 3 and idle()
