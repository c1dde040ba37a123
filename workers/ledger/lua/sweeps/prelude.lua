-- Shared by the scripts of a sweep's calls. ARGV[1] is the lifetime of its keys in ms, prolonged by every step that moves
-- the sweep on, ARGV[2] the token of the driver that takes the step ('' for other processes). Call number n is repeat
-- n // cases of case n % cases, so that a sweep that ends early is balanced.
local function number(name) return tonumber(redis.call('HGET', keys.meta, name) or '0') end
-- The last time of a sign of life. The clock may step back: a time in the future counts as now.
local function heard(name)
  local at, now = number(name), now_ms()
  if at > now then
    redis.call('HSET', keys.meta, name, now)
    return now
  end
  return at
end
local function silent() return now_ms() - heard('driver_at') >= number('driver_ms') end
-- The error if another process takes a driver's step; a silent driver does not stop a step without a token.
local function refused()
  if ARGV[2] == '' and silent() then return nil end
  return driven()
end
local function release()
  redis.call('HDEL', keys.meta, 'driver', 'driver_at')
  redis.call('SREM', keys.awaited, ARGV[2])
end
-- For closing: every sweep may close, and its driver keeps it until it releases it.
local function lacks() return false end
-- Moves a sweep from the list of open ones to that of closed ones, which drops sweeps when they expire.
local function delist(run, state)
  if redis.call('HDEL', shared.sweeps, run) == 0 or not state then return end
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', shared.closed, 0, now_ms())) do redis.call('ZREM', shared.closed, gone) end
  redis.call('ZADD', shared.closed, now_ms() + tonumber(ARGV[1]), run)
  redis.call('PEXPIRE', shared.closed, ARGV[1])
end
local function set_state(state, reason)
  redis.call('HSET', keys.meta, 'state', state, 'reason', reason)
  if state ~= 'open' then delist(string.match(keys.meta, '{(.*)}'), state) end
end
local function keeps() return true end
local function wanted(call, cases)
  return redis.call('SISMEMBER', keys.recorded, call) == 0 and redis.call('HEXISTS', keys.held, call) == 0
    and redis.call('SISMEMBER', keys.halted, call % cases) == 0 and redis.call('SISMEMBER', keys.aside, call % cases) == 0
end
-- The next call that is wanted and that nobody has; nil if there is none. It stays where it is.
local function next_call(cases, total)
  while true do
    local back = redis.call('LINDEX', keys.again, 0)
    if not back then break end
    if wanted(tonumber(back), cases) then return tonumber(back) end
    redis.call('LPOP', keys.again)
  end
  local cursor = number('cursor')
  local first = cursor
  while cursor < total and not wanted(cursor, cases) do cursor = cursor + 1 end
  if cursor > first then redis.call('HSET', keys.meta, 'cursor', cursor) end
  return cursor < total and cursor or nil
end
-- Whether calls are left of cases that a user holds back: the sweep waits for them.
local function held_back(cases, total)
  for _, case in ipairs(redis.call('SMEMBERS', keys.aside)) do
    if redis.call('SISMEMBER', keys.halted, case) == 0 then
      for call = tonumber(case), total - 1, cases do
        if redis.call('SISMEMBER', keys.recorded, call) == 0 then return true end
      end
    end
  end
  return false
end
local function lost_name(holder, call, attempt) return holder .. ' ' .. call .. (attempt > 1 and ' ' .. attempt or '') end
-- Uncounts lost attempts of a call whose result came after all. Returns whether there were any.
local function recovered(holder, call)
  local attempt = 1
  while redis.call('SREM', keys.lost, lost_name(holder, call, attempt)) == 1 do attempt = attempt + 1 end
  return attempt > 1
end
-- Takes a call from the process that holds it.
local function let_go(call)
  redis.call('HDEL', keys.kept, call)
  redis.call('HDEL', keys.held, call)
  redis.call('HDEL', keys.retries, call)
  redis.call('HDEL', keys.begun, call)
  redis.call('HDEL', keys.used, 'at ' .. call)
end
-- Counts the tries of a dead process against the budget of their case, and the time until its lease ended.
local function use(call, tries, ended)
  local began = tonumber(redis.call('HGET', keys.used, 'at ' .. call))
  if not began or tries <= 0 then return end
  local before, seconds, cost = string.match(redis.call('HGET', keys.used, call) or '0 0 0', '^(%S+) (%S+) (%S+)$')
  local took = math.max(0, ended - began) / 1000
  redis.call('HSET', keys.used, call, string.format('%d %.3f %s', (tonumber(before) or 0) + tries, (tonumber(seconds) or 0) + took, cost or '0'))
end
-- Puts a call back to those to make. If its process is dead, attempts that had begun count as lost: they may have reached
-- the target, and then they were paid. Not those of the conversation so far, which goes on.
local function take_back(call, holder, dead, ended)
  local begun = dead and tonumber(redis.call('HGET', keys.begun, call)) or 0
  local kept = tonumber(redis.call('HGET', keys.kept, call)) or 0
  if kept > 0 then redis.call('HINCRBY', keys.talked, call, kept) end
  use(call, begun - kept, ended or now_ms())
  for attempt = 1, begun - kept do redis.call('SADD', keys.lost, lost_name(holder, call, attempt)) end
  let_go(call)
  redis.call('RPUSH', keys.again, call)
end
-- Takes back calls of processes that are silent for longer than their lease. No lease ends later than one lease from now:
-- if the clock was set back, processes have that time to give a sign of life.
local function reclaim()
  local now, lease = now_ms(), number('lease')
  if lease > 0 then
    for _, holder in ipairs(redis.call('ZRANGEBYSCORE', keys.holders, '(' .. string.format('%d', now + 2 * lease), '+inf')) do
      redis.call('ZADD', keys.holders, now + lease, holder)
    end
  end
  local over = redis.call('ZRANGEBYSCORE', keys.holders, '-inf', now)
  if #over == 0 then return end
  local dead = {}
  for _, holder in ipairs(over) do
    dead[holder] = tonumber(redis.call('ZSCORE', keys.holders, holder))
    redis.call('ZREM', keys.holders, holder)
    redis.call('SREM', keys.awaited, holder)
  end
  local held = redis.call('HGETALL', keys.held)
  for i = 1, #held, 2 do
    if dead[held[i + 1]] then
      take_back(held[i], held[i + 1], true, dead[held[i + 1]])
      redis.call('HINCRBY', keys.meta, 'reclaimed', 1)
    end
  end
end
-- Gives a new lease to processes that hold calls but are not among the holders (that key was lost).
local function adopt(held)
  for i = 2, #held, 2 do
    if not redis.call('ZSCORE', keys.holders, held[i]) then
      redis.call('ZADD', keys.holders, now_ms() + number('lease'), held[i])
    end
  end
end
-- Stores attempts under way of a process, as its run folder counts them: lost ones, until that process gives a sign of life.
local function under_way(holder, attempts)
  redis.call('HSET', keys.meta, 'at ' .. holder, attempts)
  redis.call('HINCRBY', keys.meta, 'at', attempts)
end
local function heard_of(holder)
  local attempts = number('at ' .. holder)
  if attempts == 0 then return end
  redis.call('HDEL', keys.meta, 'at ' .. holder)
  redis.call('HINCRBY', keys.meta, 'at', -attempts)
end
-- The number of lost attempts, as far as known.
local function lost() return number('lost') + number('at') + redis.call('SCARD', keys.lost) end
-- Tallies of processes for the sweep: each reports its whole tally, 'number attempts outputs cost', and the highest number
-- counts. So nothing is counted twice, and a server restored to an older state gets the right sums again.
local SUMS = {'attempts', 'paid', 'spent'}
local function numbers(tally)
  local values = {}
  for value in string.gmatch(tally or '0 0 0 0', '%S+') do table.insert(values, tonumber(value)) end
  return values
end
local function exact(value) return string.format('%.17g', value) end
local function keep_tally(name, tally)
  if not name or redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return end
  local known = redis.call('HGET', keys.meta, 'by ' .. name)
  if known == tally then return end
  local before, now = numbers(known), numbers(tally)
  if now[1] <= before[1] then return end
  redis.call('HSET', keys.meta, 'by ' .. name, tally)
  for i, sum in ipairs(SUMS) do redis.call('HSET', keys.meta, sum, exact(number(sum) + now[i + 1] - before[i + 1])) end
end
local function store_tally(argument) keep_tally(string.match(argument, '^(%S+) (.+)$')) end
-- A sum; while processes must still report their tallies, at least the run folder's count.
local function at_least(sum) return math.max(number(sum), number('least ' .. sum)) end
-- Attempts that ended, those of conversations that wait to go on, and those that are under way or handed out.
local function started()
  local count = at_least('attempts') + redis.call('HLEN', keys.held) + lost()
  for _, retries in ipairs(redis.call('HVALS', keys.retries)) do count = count + retries end
  for _, talked in ipairs(redis.call('HVALS', keys.talked)) do count = count + talked end
  return count
end
-- This server has lost data. Until the processes that it knows, and the driver, have reported, it offers no calls: they may
-- be made, or paid, already.
local function await_reports()
  -- A number that no other server of this sweep gave: otherwise reports to another server that is as old would seem to be
  -- reports to this one.
  redis.call('HSET', keys.meta, 'generation', string.format('%d', math.max(number('generation') + 1, now_ms())))
  redis.call('HSET', keys.meta, 'fallen', now_ms())
  local awaited = redis.call('ZRANGE', keys.holders, 0, -1)
  redis.call('DEL', keys.awaited)
  for _, holder in ipairs(awaited) do
    redis.call('SADD', keys.awaited, holder)
    -- The server was away: do not count any process as dead.
    if number('lease') > 0 then redis.call('ZADD', keys.holders, now_ms() + number('lease'), holder) end
  end
  local driver = redis.call('HGET', keys.meta, 'driver')
  if driver then redis.call('SADD', keys.awaited, driver) end
end
-- Waits also for processes that this server may not know.
local function await(holders)
  for holder in string.gmatch(holders, '%S+') do redis.call('SADD', keys.awaited, holder) end
end
-- Notices a new server (a promoted replica or a restart), which may have lost data.
local function notice()
  local facts = redis.pcall('INFO', 'replication')
  local server = type(facts) == 'string' and string.match(facts, 'master_replid:(%x+)')
  local before = redis.call('HGET', keys.meta, 'server')
  if not server or server == before then return end
  redis.call('HSET', keys.meta, 'server', server)
  if before then await_reports() end
end
-- Whether reports are still awaited: no longer than a process's lease, and at least for the pause that unknown processes
-- need.
local function unsettled()
  local at = heard('fallen')
  if at == 0 then return false end
  local since, pause = now_ms() - at, number('pause')
  local lease = number('lease')
  local most = math.max(pause, lease > 0 and math.min(lease, 10000) or 10000) -- without a lease, no process has claimed here yet
  if since < pause or (since < most and redis.call('SCARD', keys.awaited) > 0) then return true end
  for _, sum in ipairs(SUMS) do
    -- The missing part belongs to processes that have ended.
    redis.call('HSET', keys.meta, sum, exact(at_least(sum)))
    redis.call('HDEL', keys.meta, 'least ' .. sum)
  end
  redis.call('HDEL', keys.meta, 'fallen')
  redis.call('DEL', keys.awaited)
  return false
end
-- Notes what the conversation of a call has cost so far, with how many attempts; its output has all of them in the end.
local function talk_cost(call, attempts, cost)
  local name = 'cost ' .. call
  local before = redis.call('HGET', keys.talks, name) or '0 0'
  local known, known_cost = string.match(before, '^(%S+) (%S+)$')
  if attempts > 0 then
    redis.call('HSET', keys.talks, name, string.format('%d %s', attempts, exact(cost)))
  elseif before == '0 0' then
    return
  else
    redis.call('HDEL', keys.talks, name)
  end
  redis.call('HSET', keys.meta, 'talking', exact(math.max(0, number('talking') + cost - tonumber(known_cost))),
    'talking_attempts', math.max(0, number('talking_attempts') + attempts - tonumber(known)))
end
-- The cost so far, with that of conversations that have not ended, and lost attempts at the mean of paid ones: an output of a
-- conversation has several.
local function spent()
  local paid, known = math.max(at_least('paid'), number('answered')), at_least('spent')
  return (paid > 0 and known + lost() * known / paid or known) + number('talking')
end
-- What so many calls that are under way will cost, at the mean of those of conversations so far.
local function next_cost(calls)
  local attempts = number('talking_attempts')
  return attempts > 0 and calls * number('talking') / attempts or 0
end
-- Whether there is a budget of cost, and the cost of a call is not known yet.
local function unpriced() return number('max_cost') > 0 and number('spent') == 0 and number('told') == 0 end
-- How many more attempts the budgets allow: of calls, and of cost at the mean of those paid so far. Ten answers without a
-- cost show that none will have one; failures show nothing.
local function room()
  local calls, cost = number('max_calls'), number('max_cost')
  local most = calls > 0 and calls - started() or math.huge
  if cost > 0 then
    local paid, busy = number('paid'), redis.call('HLEN', keys.held)
    if unpriced() then
      most = math.min(most, 10 - number('untold') - lost() - busy)
    elseif number('spent') > 0 then
      -- Each answer under way will cost the mean, of which its conversation has spent a part; or more, its next call at least.
      local mean, talking = number('spent') / paid, number('talking')
      local all = math.max(talking + next_cost(busy), busy * mean)
      most = math.min(most, math.floor((cost - spent() + talking - all) / mean + 1e-6))
    end
    if spent() >= cost then most = math.min(most, 0) end
  end
  return most
end
