-- A sweep, once; opening it again resumes it, under the budgets given now, unless it was cancelled. Returns the state it
-- is in.
-- ARGV: ttl, sweep, cases, calls in all, most calls, most cost (0: no bound), ms without a producer
-- after which no more calls are handed out (0: it needs none), key of the list of open sweeps, run, and what the run
-- folder knows of: attempts, outputs, cost
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'cancelled' then return state end
if not state then redis.call('HSET', KEYS[1], 'sweep', ARGV[2], 'cases', ARGV[3], 'total', ARGV[4], 'cursor', 0) end
redis.call('HSET', KEYS[1], 'max_calls', ARGV[5], 'max_cost', ARGV[6], 'state', 'open', 'reason', '',
  'unattended_ms', ARGV[7], 'attended', now_ms())
redis.call('HSET', ARGV[8], ARGV[9], ARGV[2])
for i, name in ipairs({'started', 'paid', 'spent'}) do
  if number(name) < tonumber(ARGV[9 + i]) then redis.call('HSET', KEYS[1], name, ARGV[9 + i]) end
end
return 'open'
