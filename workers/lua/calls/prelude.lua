-- Shared by the scripts of a sweep's calls. KEYS: 1 meta, 2 prompts, 3 again, 4 holders, 5 held, 6 recorded, 7 outbox,
-- 8 halted, 9 left. ARGV[1] is their lifetime in ms, prolonged by every step that moves the sweep on. Call number n is repeat n // cases of case
-- n % cases, so that a sweep which ends early is balanced.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function number(name) return tonumber(redis.call('HGET', KEYS[1], name) or '0') end
local function wanted(call, cases)
  return redis.call('SISMEMBER', KEYS[6], call) == 0 and redis.call('HEXISTS', KEYS[5], call) == 0
    and redis.call('SISMEMBER', KEYS[8], call % cases) == 0
end
-- The next call that is wanted and nobody has, nil when there is none; it stays where it is.
local function next_call(cases, total)
  while true do
    local back = redis.call('LINDEX', KEYS[3], 0)
    if not back then break end
    if wanted(tonumber(back), cases) then return tonumber(back) end
    redis.call('LPOP', KEYS[3])
  end
  local cursor = number('cursor')
  local first = cursor
  while cursor < total and not wanted(cursor, cases) do cursor = cursor + 1 end
  if cursor > first then redis.call('HSET', KEYS[1], 'cursor', cursor) end
  return cursor < total and cursor or nil
end
-- Calls of processes that are silent for longer than their lease go back.
local function reclaim()
  local silent = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now_ms())
  if #silent == 0 then return end
  local dead = {}
  for _, holder in ipairs(silent) do
    dead[holder] = true
    redis.call('ZREM', KEYS[4], holder)
  end
  local held = redis.call('HGETALL', KEYS[5])
  for i = 1, #held, 2 do
    if dead[held[i + 1]] then
      redis.call('HDEL', KEYS[5], held[i])
      redis.call('RPUSH', KEYS[3], held[i])
      redis.call('HINCRBY', KEYS[1], 'reclaimed', 1)
    end
  end
end
-- How many more attempts the budgets allow: calls, and cost at the mean of those paid so far (ten before any is, and
-- no more than ten where the target tells no cost).
local function room()
  local calls, cost = number('max_calls'), number('max_cost')
  local most = calls > 0 and calls - number('started') or math.huge
  if cost > 0 then
    local paid, spent, busy = number('paid'), number('spent'), redis.call('HLEN', KEYS[5])
    if spent == 0 then
      most = math.min(most, 10 - paid - busy)
    else
      most = math.min(most, math.floor((cost - spent) / (spent / paid) + 1e-6) - busy)
    end
  end
  return most
end
