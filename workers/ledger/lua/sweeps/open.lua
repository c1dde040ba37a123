-- A sweep, once, and its driver; opening it again resumes it, under the budgets given now. Returns {state, generation},
-- or {'differs', sweep} for another one; it changes nothing then, nor where another drives it.
-- ARGV: ttl, token, run, sweep, cases, calls in all, most calls, most cost (0: no bound), ms without a producer after
-- which no more calls are handed out (0: it needs none), the token that this folder's driver had before, ms after which
-- a silent driver loses the sweep, 'keep' its state, go 'on' from one that is not over, or make one that is done go on
-- 'anew', where its outputs go, ms for which no calls are offered when the server lost some, and what the run folder
-- knows of: attempts that ended, outputs, cost, lost calls, outputs that nobody paid, answers whose cost is known, and
-- those whose is not, processes that the driver saw (by spaces), how many had attempts under way, (process,
-- attempts)..., (name, tally)...
local run, sweep, cases, total, max_calls, max_cost, unattended_ms, before, driver_ms, how, place, pause = unpack(ARGV, 3, 14)
local lost_calls, free, living, told_from = ARGV[18], ARGV[19], ARGV[22], 24 + 2 * ARGV[23]
local now, known = now_ms(), redis.call('HGET', keys.meta, 'sweep')
if known and known ~= sweep then return {'differs', known}, true end
local driver = redis.call('HGET', keys.meta, 'driver') or ARGV[2]
if driver ~= ARGV[2] and driver ~= before and not silent() then return redis.error_reply('DRIVEN ' .. driver), true end
local state = redis.call('HGET', keys.meta, 'state')
if not known then
  redis.call('HSET', keys.meta, 'sweep', sweep, 'cases', cases, 'total', total, 'cursor', 0, 'lost', lost_calls,
    'told', ARGV[20], 'untold', ARGV[21])
  for i = 24, told_from - 1, 2 do under_way(ARGV[i], ARGV[i + 1]) end
end
local ended = state == 'cancelled' or (state == 'done' and how ~= 'anew') or (state and how == 'keep')
if not state or (not ended and state ~= 'open') then
  state = 'open'
  redis.call('HSET', keys.meta, 'state', state, 'reason', '')
end
redis.call('HSET', keys.meta, 'max_calls', max_calls, 'max_cost', max_cost, 'unattended_ms', unattended_ms, 'attended', now,
  'driver_ms', driver_ms, 'place', place, 'pause', pause, 'free', free)
if ARGV[2] ~= '' then
  redis.call('HSET', keys.meta, 'driver', ARGV[2], 'driver_at', now)
  -- Whoever is followed tells nothing any more: what it had is its follower's to tell.
  if driver ~= ARGV[2] and redis.call('SREM', keys.awaited, driver) == 1 then redis.call('SADD', keys.awaited, ARGV[2]) end
end
if state == 'open' then redis.call('HSET', shared.sweeps, run, sweep) end
for i = told_from, #ARGV, 2 do tell(ARGV[i], ARGV[i + 1]) end
local less = not known and (how == 'keep' or tonumber(ARGV[15]) + lost() > 0)
for i, sum in ipairs(SUMS) do
  local least = tonumber(ARGV[14 + i])
  if number(sum) < least * (1 - 1e-9) then less = true end -- sums of cost differ in their last digits
  redis.call('HSET', keys.meta, 'least ' .. sum, ARGV[14 + i])
end
notice()
if less and number('fallen') == 0 then fall() end
-- Once more where it has noticed by itself: whoever came since is to name its calls to a server that waits for all.
if living ~= '' and number('fallen') > 0 then
  fall()
  await(living)
end
unsettled()
return {state, number('generation')}
