-- How a sweep stands: {meta (flat; empty for an unknown one), outputs to collect, calls in flight, processes, recorded
-- calls, cases halted, 1 while calls are left to hand out, prompts}. ARGV: ttl, 1 when it is the producer who looks,
-- which keeps the sweep
if redis.call('HEXISTS', KEYS[1], 'sweep') == 0 then return {{}, 0, 0, 0, 0, 0, 0, 0} end
reclaim()
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'attended', now_ms()) end
local left = next_call(number('cases'), number('total')) and 1 or 0
local meta = redis.call('HGETALL', KEYS[1])
for i = 1, #meta, 2 do
  if meta[i] == 'sweep' then meta[i + 1] = '' end
end
return {
  meta, redis.call('LLEN', KEYS[7]), redis.call('HLEN', KEYS[5]), redis.call('ZCARD', KEYS[4]),
  redis.call('SCARD', KEYS[6]), redis.call('SCARD', KEYS[8]), left, redis.call('HLEN', KEYS[2]),
}, ARGV[2] ~= '1'
