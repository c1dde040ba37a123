-- What became of calls; the first output of each stays, a later one was paid for twice. A fatal failure (a spent quota,
-- a wrong key) is no output: it stops the sweep, and its call is made when the sweep goes on. An output that comes after
-- all of a call that was counted as lost takes it from those. One that is told once more counts only where it was lost,
-- and what it cost only where that was not counted then: it was of one that is to be made again.
-- ARGV: ttl, token, holder, totals key, target, (call, kind of failure or '', fatal reason or '', cost, prompt tokens,
-- completion tokens, latency bucket, latency in microseconds, output, 1 when told once more)... Returns how many were
-- new. Costs in totals are in millionths.
local me, totals, target, fresh = ARGV[3], ARGV[4], ' ' .. ARGV[5], 0
local there = redis.call('HEXISTS', KEYS[1], 'sweep') == 1
local function keep(call, kind, fatal, cost, output, counted)
  if not counted then
    redis.call('HINCRBYFLOAT', KEYS[1], 'spent', cost)
    redis.call('HINCRBY', KEYS[1], 'paid', 1)
  end
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
    redis.call('RPUSH', KEYS[7], output)
    redis.call('HINCRBY', KEYS[1], 'recorded', 1)
    if kind ~= '' then
      redis.call('HINCRBY', KEYS[1], 'errors', 1)
      redis.call('HINCRBY', totals, 'failed' .. target .. ' ' .. kind, 1)
    else
      redis.call('HINCRBY', totals, 'answered' .. target, 1)
    end
  end
end
for i = 6, #ARGV, 10 do
  local call, cost = ARGV[i], ARGV[i + 3]
  local known = ARGV[i + 9] == '1' and (not there or redis.call('SISMEMBER', KEYS[6], call) == 1)
  if redis.call('HGET', KEYS[5], call) == me then redis.call('HDEL', KEYS[5], call) end
  redis.call('SREM', KEYS[9], me .. ' ' .. call)
  local counted = not known and redis.call('SREM', KEYS[11], call) == 1 and ARGV[i + 9] == '1'
  if there and not known then keep(call, ARGV[i + 1], ARGV[i + 2], cost, ARGV[i + 8], counted) end
  if not known and not counted then
    if tonumber(cost) > 0 then
      redis.call('HINCRBY', totals, 'cost' .. target, math.floor(tonumber(cost) * 1000000 + 0.5))
    end
    redis.call('HINCRBY', totals, 'tokens' .. target .. ' prompt', ARGV[i + 4])
    redis.call('HINCRBY', totals, 'tokens' .. target .. ' completion', ARGV[i + 5])
    redis.call('HINCRBY', totals, 'seconds' .. target .. ' ' .. ARGV[i + 6], 1)
    redis.call('HINCRBY', totals, 'seconds' .. target .. ' sum', ARGV[i + 7])
  end
end
return fresh
