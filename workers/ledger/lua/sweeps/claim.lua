-- Hands out calls to a process and renews its lease. Returns {state, generation, calls to resend (and -1 - call to drop),
-- call...}; 'gone' for an
-- unknown sweep. A process that has not listed its calls in this generation must do so.
-- ARGV: ttl, token, run, holder, its tally ('name tally' or ''), lease ms, most, number of its calls that it lists (-1: no
-- list), those ('call attempts_begun'), and calls that it recorded lately
local state = redis.call('HGET', keys.meta, 'state')
local run, me, tally, lease, most_calls, listed = unpack(ARGV, 3, 8)
lease, most_calls, listed = tonumber(lease), tonumber(most_calls), tonumber(listed)
if state ~= 'open' then delist(run, state) end
if not state then return {'gone', 0, {}} end
notice()
store_tally(tally)
local now = now_ms()
if now - number('touched') > lease / 2 then
  -- No process was heard of for a while, so the server was away: do not count any process as dead.
  for _, holder in ipairs(redis.call('ZRANGE', keys.holders, 0, -1)) do redis.call('ZADD', keys.holders, now + lease, holder) end
end
redis.call('HSET', keys.meta, 'touched', now)
if number('lease') < lease then redis.call('HSET', keys.meta, 'lease', lease) end
redis.call('ZADD', keys.holders, now + lease, me)
reclaim()
-- A process has the calls that it lists and no others: it does not know calls from a reply that never arrived, or from
-- before the server was restored to an older state. It resends results that the ledger has lost.
local lost_results = {}
if listed >= 0 then
  heard_of(me)
  local mine, recent = {}, {}
  for i = 9, 8 + listed do
    local call, begun = string.match(ARGV[i], '^(%d+) (%d+)$')
    mine[call] = tonumber(begun)
  end
  for i = 9 + listed, #ARGV do
    recent[ARGV[i]] = true
    if redis.call('SISMEMBER', keys.recorded, ARGV[i]) == 0 then
      table.insert(lost_results, ARGV[i])
      redis.call('HSETNX', keys.held, ARGV[i], me) -- so that no other process makes it meanwhile
    end
  end
  local held = redis.call('HGETALL', keys.held)
  adopt(held)
  for i = 1, #held, 2 do
    if held[i + 1] == me and not mine[held[i]] and not recent[held[i]] then take_back(held[i], me, false) end
  end
  for call, begun in pairs(mine) do
    -- A call that it has not begun may be another process's by now; it may begin only a call that the ledger holds for it.
    if redis.call('HGET', keys.used, 'drop ' .. call) == me then
      -- A user had it queued again. If this process was given it once more, it does not list it next time, and gives it back.
      redis.call('HDEL', keys.used, 'drop ' .. call)
      table.insert(lost_results, -1 - call)
    elseif begun > 0 and redis.call('SISMEMBER', keys.recorded, call) == 0 then
      redis.call('HSET', keys.held, call, me)
      redis.call('HSET', keys.begun, call, begun)
      recovered(me, call)
    end
  end
  redis.call('SREM', keys.awaited, me)
end
-- Claims alone do not keep a sweep without calls in flight from expiring.
local function idle() return redis.call('HLEN', keys.held) == 0 end
local answer = {state, number('generation'), lost_results}
local cases, total = number('cases'), number('total')
local alone = number('unattended_ms') > 0 and now - heard('attended') > number('unattended_ms')
if state ~= 'open' or alone or redis.call('HLEN', keys.prompts) < cases or unsettled() then return answer, idle() end
local most = math.min(most_calls, room())
-- The first answer shows what a call costs: ten at once could cost many times the budget. Add the number of failures, so
-- that a target that answers only some calls is not called one by one.
if unpriced() then most = math.min(most, 1 + number('errors') - redis.call('HLEN', keys.held)) end
-- The first three entries of the answer are not calls.
while #answer <= most + 2 do
  local call = next_call(cases, total)
  if not call then break end
  redis.call('HSET', keys.held, call, me)
  redis.call('HDEL', keys.kept, call)
  redis.call('HDEL', keys.begun, call) -- left over if the ledger lost another process's hold
  table.insert(answer, call)
end
local busy = redis.call('HLEN', keys.held)
if #answer == 3 and most_calls > 0 and busy == 0 and room() <= 0 and next_call(cases, total) then
  local costless = unpriced() and number('untold') > 0
  redis.call('HSET', keys.meta, 'state', 'spent', 'reason',
    costless and 'the target reports no tokens, so its cost is not known' or 'the budget is spent')
  answer[1] = 'spent'
  return answer
end
return answer, #answer == 3 and idle()
