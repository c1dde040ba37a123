-- What became of calls; the first output of each stays, a later one was paid for twice. A fatal failure (a spent quota,
-- a wrong key) is no output: it stops the sweep, and its call is made when the sweep goes on.
-- ARGV: ttl, holder, totals key, target, (call, kind of failure or '', fatal reason or '', cost, prompt tokens,
-- completion tokens, latency bucket, latency in microseconds, output)... Returns how many were new. Costs in totals are in
-- millionths.
local totals, target, fresh = ARGV[3], ' ' .. ARGV[4], 0
for i = 5, #ARGV, 9 do
  local call, kind, fatal, cost = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('HGET', KEYS[5], call) == ARGV[2] then redis.call('HDEL', KEYS[5], call) end
  if redis.call('HEXISTS', KEYS[1], 'sweep') == 1 then
    redis.call('HINCRBYFLOAT', KEYS[1], 'spent', cost)
    redis.call('HINCRBY', KEYS[1], 'paid', 1)
    if fatal ~= '' then
      redis.call('RPUSH', KEYS[3], call)
      if redis.call('HGET', KEYS[1], 'state') == 'open' then
        redis.call('HSET', KEYS[1], 'state', 'failed', 'reason', fatal)
      end
      redis.call('HINCRBY', totals, 'failed' .. target .. ' ' .. kind, 1)
    elseif redis.call('SADD', KEYS[6], call) == 0 then
      redis.call('HINCRBY', KEYS[1], 'repaid', 1)
      redis.call('HINCRBY', totals, 'repaid' .. target, 1)
    else
      fresh = fresh + 1
      redis.call('RPUSH', KEYS[7], ARGV[i + 8])
      redis.call('HINCRBY', KEYS[1], 'recorded', 1)
      if kind ~= '' then
        redis.call('HINCRBY', KEYS[1], 'errors', 1)
        redis.call('HINCRBY', totals, 'failed' .. target .. ' ' .. kind, 1)
      else
        redis.call('HINCRBY', totals, 'answered' .. target, 1)
      end
    end
  end
  if tonumber(cost) > 0 then redis.call('HINCRBY', totals, 'cost' .. target, math.floor(tonumber(cost) * 1000000 + 0.5)) end
  redis.call('HINCRBY', totals, 'tokens' .. target .. ' prompt', ARGV[i + 4])
  redis.call('HINCRBY', totals, 'tokens' .. target .. ' completion', ARGV[i + 5])
  redis.call('HINCRBY', totals, 'seconds' .. target .. ' ' .. ARGV[i + 6], 1)
  redis.call('HINCRBY', totals, 'seconds' .. target .. ' sum', ARGV[i + 7])
end
return fresh
