-- How a sweep stands: {meta (flat; empty for an unknown one), outputs to collect, calls in flight, processes, recorded
-- calls, cases halted, 1 while calls are left to hand out, prompts, lost calls, ms since its driver was heard of, attempts,
-- outputs paid, cost, 1 while somebody is to tell what this server lost}. One that is open is put back on the list of those that are.
-- ARGV: ttl, token, 1 when it is the producer who looks, which keeps the sweep, key of that list, run, the generation that
-- the producer has told what its folder has, how many outputs nobody paid for this sweep (less those it paid twice)
local header = redis.call('HGET', KEYS[1], 'sweep')
if not header then return {{}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '0', 0} end
if ARGV[3] == '1' then
  local other = driven()
  if other then return other, true end
  redis.call('HSET', KEYS[1], 'attended', now_ms(), 'free', ARGV[7])
end
notice()
if ARGV[3] == '1' and ARGV[6] == tostring(number('generation')) then redis.call('SREM', KEYS[13], ARGV[2]) end
if redis.call('HGET', KEYS[1], 'state') == 'open' then redis.call('HSETNX', ARGV[4], ARGV[5], header) end
adopt(redis.call('HGETALL', KEYS[5]))
reclaim()
local waits = unsettled() and 1 or 0
local left = next_call(number('cases'), number('total')) and 1 or 0
local meta = redis.call('HGETALL', KEYS[1])
for i = 1, #meta, 2 do
  if meta[i] == 'sweep' then meta[i + 1] = '' end
end
return {
  meta, redis.call('LLEN', KEYS[7]), redis.call('HLEN', KEYS[5]), redis.call('ZCARD', KEYS[4]),
  redis.call('SCARD', KEYS[6]), redis.call('SCARD', KEYS[8]), left, redis.call('HLEN', KEYS[2]), lost(),
  now_ms() - heard('driver_at'),
  started(), at_least('paid'), exact(at_least('spent')), waits,
}, ARGV[3] ~= '1'
