-- Calls for a process to make, and a sign of its life. Returns {state, generation, calls to tell of again, call...};
-- 'gone' for an unknown sweep. A process that has not named its calls to this generation is to do so.
-- ARGV: ttl, token, run, holder, what it has made ('name tally' or ''), lease ms, most, how many calls it names as its
-- own (-1: it names none), those ('call attempts that have begun'), and those that it recorded lately
local state = redis.call('HGET', keys.meta, 'state')
local run, me, made, lease, most_calls, named = unpack(ARGV, 3, 8)
lease, most_calls, named = tonumber(lease), tonumber(most_calls), tonumber(named)
if state ~= 'open' then delist(run, state) end
if not state then return {'gone', 0, {}} end
notice()
told(made)
local now = now_ms()
if now - number('touched') > lease / 2 then
  -- Nobody was heard of for a while: the server was away, so nobody is taken for dead because of that.
  for _, holder in ipairs(redis.call('ZRANGE', keys.holders, 0, -1)) do redis.call('ZADD', keys.holders, now + lease, holder) end
end
redis.call('HSET', keys.meta, 'touched', now)
if number('lease') < lease then redis.call('HSET', keys.meta, 'lease', lease) end
redis.call('ZADD', keys.holders, now + lease, me)
reclaim()
-- A process has what it names, and nothing else: an answer that never arrived, or a server that came back older than it
-- was, gave it calls that it does not know of. What it recorded and the ledger has lost is told again, not called again.
local untold = {}
if named >= 0 then
  heard_of(me)
  local mine, recent = {}, {}
  for i = 9, 8 + named do
    local call, begun = string.match(ARGV[i], '^(%d+) (%d+)$')
    mine[call] = tonumber(begun)
  end
  for i = 9 + named, #ARGV do
    recent[ARGV[i]] = true
    if redis.call('SISMEMBER', keys.recorded, ARGV[i]) == 0 then
      table.insert(untold, ARGV[i])
      redis.call('HSETNX', keys.held, ARGV[i], me) -- nobody else makes it meanwhile
    end
  end
  local held = redis.call('HGETALL', keys.held)
  adopt(held)
  for i = 1, #held, 2 do
    if held[i + 1] == me and not mine[held[i]] and not recent[held[i]] then take_back(held[i], me, false) end
  end
  for call, begun in pairs(mine) do
    -- One that it has not begun may be another's by now, or the room for it: it begins only while it is held for it.
    if begun > 0 and redis.call('SISMEMBER', keys.recorded, call) == 0 then
      redis.call('HSET', keys.held, call, me)
      redis.call('HSET', keys.begun, call, begun)
      recovered(me, call)
    end
  end
  redis.call('SREM', keys.awaited, me)
end
-- With nothing in flight, asking again and again does not keep the sweep.
local function idle() return redis.call('HLEN', keys.held) == 0 end
local answer = {state, number('generation'), untold}
local cases, total = number('cases'), number('total')
local alone = number('unattended_ms') > 0 and now - heard('attended') > number('unattended_ms')
if state ~= 'open' or alone or redis.call('HLEN', keys.prompts) < cases or unsettled() then return answer, idle() end
local most = math.min(most_calls, room())
-- What a call costs shows when one was answered: ten at once could cost many times the budget. As many more as have
-- failed, so that a target which answers some calls only is not asked one by one.
if unpriced() then most = math.min(most, 1 + number('errors') - redis.call('HLEN', keys.held)) end
-- Three entries of the answer are no calls.
while #answer <= most + 2 do
  local call = next_call(cases, total)
  if not call then break end
  redis.call('HSET', keys.held, call, me)
  redis.call('HDEL', keys.begun, call) -- where another's hold of it was lost
  table.insert(answer, call)
end
local busy = redis.call('HLEN', keys.held)
if #answer == 3 and most_calls > 0 and busy == 0 and room() <= 0 and next_call(cases, total) then
  local costless = unpriced() and number('untold') > 0
  redis.call('HSET', keys.meta, 'state', 'spent', 'reason',
    costless and 'the target tells no tokens, so its cost is not known' or 'the budget is spent')
  answer[1] = 'spent'
  return answer
end
return answer, #answer == 3 and idle()
