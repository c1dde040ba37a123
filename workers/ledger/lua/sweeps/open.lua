-- Stores a sweep once, and its driver; opening it again resumes it, under the present budgets. Returns {state, generation},
-- or {'differs', sweep} if the ledger has another one; then it changes nothing, nor if another process drives the sweep.
-- ARGV: ttl, token, run, sweep, cases, number of calls, most calls, most cost (0: no bound), ms without a producer after
-- which no more calls are handed out (0: it needs none), the token of this folder's last driver, ms after which a silent
-- driver loses the sweep, 'keep' its state, go 'on' unless it is over, or make a done one go on 'anew', the folder for its
-- outputs, ms without offers after the server lost calls, and the run folder's counts: attempts that ended, outputs, cost,
-- lost calls, outputs that nobody paid, answers with a known cost, answers with an unknown cost, attempts of outputs that
-- were answered, living processes that the driver saw (separated by spaces), class and team whose shares its calls are,
-- number of processes with attempts under way, (process, attempts)..., (name, tally)...
local run, sweep, cases, total, max_calls, max_cost, unattended_ms, before, driver_ms, how, folder, pause = unpack(ARGV, 3, 14)
local lost_calls, free, living, tallies_from = ARGV[18], ARGV[19], ARGV[23], 27 + 2 * ARGV[26]
local now, known = now_ms(), redis.call('HGET', keys.meta, 'sweep')
if known and known ~= sweep then return {'differs', known}, true end
local driver = redis.call('HGET', keys.meta, 'driver') or ARGV[2]
if driver ~= ARGV[2] and driver ~= before and not silent() then return redis.error_reply('DRIVEN ' .. driver), true end
local state = redis.call('HGET', keys.meta, 'state')
if not known then
  redis.call('HSET', keys.meta, 'sweep', sweep, 'cases', cases, 'total', total, 'cursor', 0, 'lost', lost_calls,
    'told', ARGV[20], 'untold', ARGV[21], 'answered', ARGV[22])
  for i = 27, tallies_from - 1, 2 do under_way(ARGV[i], ARGV[i + 1]) end
end
local ended = state == 'cancelled' or (state == 'done' and how ~= 'anew') or (state and how == 'keep')
if not state or (not ended and state ~= 'open') then
  state = 'open'
  redis.call('HSET', keys.meta, 'state', state, 'reason', '')
end
redis.call('HSET', keys.meta, 'max_calls', max_calls, 'max_cost', max_cost, 'unattended_ms', unattended_ms, 'attended', now,
  'driver_ms', driver_ms, 'place', folder, 'pause', pause, 'free', free, 'class', ARGV[24], 'team', ARGV[25])
if ARGV[2] ~= '' then
  redis.call('HSET', keys.meta, 'driver', ARGV[2], 'driver_at', now)
  -- The former driver reports nothing any more: this one reports in its place.
  if driver ~= ARGV[2] and redis.call('SREM', keys.awaited, driver) == 1 then redis.call('SADD', keys.awaited, ARGV[2]) end
end
if state == 'open' then redis.call('HSET', shared.sweeps, run, sweep) end
for i = tallies_from, #ARGV, 2 do keep_tally(ARGV[i], ARGV[i + 1]) end
local less = not known and (how == 'keep' or tonumber(ARGV[15]) + lost() > 0)
for i, sum in ipairs(SUMS) do
  local least = tonumber(ARGV[14 + i])
  if number(sum) < least * (1 - 1e-9) then less = true end -- sums of cost differ in their last digits
  redis.call('HSET', keys.meta, 'least ' .. sum, ARGV[14 + i])
end
notice()
if less and number('fallen') == 0 then await_reports() end
-- Again if the server has noticed the loss by itself: processes that came since must list their calls, too.
if living ~= '' and number('fallen') > 0 then
  await_reports()
  await(living)
end
unsettled()
return {state, number('generation')}
