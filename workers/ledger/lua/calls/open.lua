-- A sweep, once, and its driver; opening it again resumes it, under the budgets given now. Returns {state, generation}, or
-- {'driven', driver} or {'differs', sweep} for one that is another's or another, and changes nothing then.
-- ARGV: ttl, token, sweep, cases, calls in all, most calls, most cost (0: no bound), ms without a producer after which no
-- more calls are handed out (0: it needs none), key of the list of open sweeps, run, the token that this folder's driver had
-- before, ms after which a silent driver loses the sweep, 'keep' its state, go 'on' from one that is not over, or make one
-- that is done go on 'anew', where its outputs go, ms for which no calls are offered when the server lost some, and what the
-- run folder knows of: attempts that ended, outputs, cost, lost calls, outputs that nobody paid, (name, tally)...
local now, known = now_ms(), redis.call('HGET', KEYS[1], 'sweep')
if known and known ~= ARGV[3] then return {'differs', known}, true end
local driver = redis.call('HGET', KEYS[1], 'driver') or ARGV[2]
if driver ~= ARGV[2] and driver ~= ARGV[11] and not silent() then return {'driven', driver}, true end
local state = redis.call('HGET', KEYS[1], 'state')
if not known then
  redis.call('HSET', KEYS[1], 'sweep', ARGV[3], 'cases', ARGV[4], 'total', ARGV[5], 'cursor', 0, 'lost', ARGV[19])
end
local ended = state == 'cancelled' or (state == 'done' and ARGV[13] ~= 'anew') or (state and ARGV[13] == 'keep')
if not state or (not ended and state ~= 'open') then
  state = 'open'
  redis.call('HSET', KEYS[1], 'state', state, 'reason', '')
end
redis.call('HSET', KEYS[1], 'max_calls', ARGV[6], 'max_cost', ARGV[7], 'unattended_ms', ARGV[8], 'attended', now,
  'driver_ms', ARGV[12], 'place', ARGV[14], 'pause', ARGV[15], 'free', ARGV[20])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'driver', ARGV[2], 'driver_at', now) end
if state == 'open' then redis.call('HSET', ARGV[9], ARGV[10], ARGV[3]) end
for i = 21, #ARGV, 2 do tell(ARGV[i], ARGV[i + 1]) end
local less = not known and (ARGV[13] == 'keep' or tonumber(ARGV[16]) + tonumber(ARGV[19]) > 0)
for i, sum in ipairs(SUMS) do
  local least = tonumber(ARGV[15 + i])
  if number(sum) < least * (1 - 1e-9) then less = true end -- sums of cost differ in their last digits
  redis.call('HSET', KEYS[1], 'least ' .. sum, ARGV[15 + i])
end
notice()
if less and number('fallen') == 0 then fall() end
unsettled()
return {state, number('generation')}
