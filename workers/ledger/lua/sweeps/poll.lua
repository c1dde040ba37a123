-- A sweep's status: {meta (flat; empty for an unknown one), outputs to collect, calls in flight, recorded calls, halted
-- cases, 1 while there are calls to hand out, prompts, lost calls, ms since its driver was heard of, attempts, outputs
-- paid, cost, 1 while processes must report what this server lost, {process, its attempts under way or lost}..., living
-- processes (separated by spaces)}. An open sweep is put back on the list of open ones.
-- ARGV: ttl, token, run, 1 if its driver polls (which keeps the sweep), the generation to which the driver reported last,
-- how many outputs nobody paid for this sweep (less those paid twice)
local attending = ARGV[4] == '1'
local header = redis.call('HGET', keys.meta, 'sweep')
if not header then return {{}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '0', 0, {}, ''} end
if attending then
  local other = refused()
  if other then return other, true end
  redis.call('HSET', keys.meta, 'attended', now_ms(), 'free', ARGV[6])
end
notice()
if attending and ARGV[5] == tostring(number('generation')) then redis.call('SREM', keys.awaited, ARGV[2]) end
if redis.call('HGET', keys.meta, 'state') == 'open' then redis.call('HSETNX', shared.sweeps, ARGV[3], header) end
adopt(redis.call('HGETALL', keys.held))
reclaim()
local at = {}
local function add(holder, attempts) at[holder] = (at[holder] or 0) + attempts end
local held = redis.call('HGETALL', keys.held)
for i = 1, #held, 2 do add(held[i + 1], 1 + (redis.call('HGET', keys.retries, held[i]) or 0)) end
for _, one in ipairs(redis.call('SMEMBERS', keys.lost)) do add(string.match(one, '^%S+'), 1) end
local waiting_for_reports = unsettled() and 1 or 0
local cases, total = number('cases'), number('total')
local left = (next_call(cases, total) or held_back(cases, total)) and 1 or 0
local meta = redis.call('HGETALL', keys.meta)
for i = 1, #meta, 2 do
  if meta[i] == 'sweep' then meta[i + 1] = '' end
  local holder = string.match(meta[i], '^at (.+)$')
  if holder then add(holder, tonumber(meta[i + 1])) end
end
local by_holder = {}
for holder, attempts in pairs(at) do
  table.insert(by_holder, holder)
  table.insert(by_holder, attempts)
end
return {
  meta, redis.call('LLEN', keys.outbox), redis.call('HLEN', keys.held),
  redis.call('SCARD', keys.recorded), redis.call('SCARD', keys.halted), left, redis.call('HLEN', keys.prompts), lost(),
  now_ms() - heard('driver_at'),
  started(), at_least('paid'), exact(at_least('spent') + number('talking')), waiting_for_reports, by_holder,
  -- Also those without a call: the driver may not have collected their outputs yet.
  table.concat(redis.call('ZRANGE', keys.holders, 0, -1), ' '),
}, not attending
