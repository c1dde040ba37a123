-- Records results of calls. The first output of each call stays; a later one was paid for twice. A fatal failure (a spent
-- quota, a wrong key) is no output: it stops the sweep, and its call is made when the sweep goes on. If an output of a lost
-- call comes after all, the call is not lost any more. The process's tally has the sums; a resent output counts in the
-- totals of all sweeps only if the ledger lost it, not if the driver had it forgotten.
-- ARGV: ttl, token, holder, its tally ('name tally' or ''), target, (call, kind of failure or '', fatal reason or '', cost,
-- prompt tokens, completion tokens, latency bucket, latency in microseconds, output, 1 if resent, 'told' or 'untold' for an
-- answer whose cost is known or not, how many of its attempts were answered)... Returns how many were new. Costs in totals are in millionths.
local me, totals, target, fresh = ARGV[3], shared.calls, ' ' .. ARGV[5], 0
store_tally(ARGV[4])
local exists = redis.call('HEXISTS', keys.meta, 'sweep') == 1
local function keep(call, kind, fatal, output, cost_is, answered)
  if fatal ~= '' then
    redis.call('RPUSH', keys.again, call)
    if redis.call('HGET', keys.meta, 'state') == 'open' then
      redis.call('HSET', keys.meta, 'state', 'failed', 'reason', fatal)
    end
    tally('HINCRBY', totals, 'failed' .. target .. ' ' .. kind, 1)
  elseif redis.call('SADD', keys.recorded, call) == 0 then
    tally('HINCRBY', totals, 'repaid' .. target, 1)
  else
    fresh = fresh + 1
    talk_cost(call, 0, 0)
    redis.call('HDEL', keys.talks, call)
    redis.call('HDEL', keys.talked, call)
    redis.call('HDEL', keys.used, call)
    redis.call('HDEL', keys.used, 'drop ' .. call)
    redis.call('RPUSH', keys.outbox, output)
    redis.call('HINCRBY', keys.meta, 'recorded', 1)
    redis.call('HINCRBY', keys.meta, 'answered', answered)
    if cost_is ~= '' then redis.call('HINCRBY', keys.meta, cost_is, 1) end
    if kind ~= '' then
      redis.call('HINCRBY', keys.meta, 'errors', 1)
      tally('HINCRBY', totals, 'failed' .. target .. ' ' .. kind, 1)
    else
      tally('HINCRBY', totals, 'answered' .. target, 1)
    end
  end
end
for i = 6, #ARGV, 12 do
  local call, cost = ARGV[i], ARGV[i + 3]
  local recorded, mine = redis.call('SISMEMBER', keys.recorded, call) == 1, redis.call('HGET', keys.held, call) == me
  if mine then let_go(call) end
  if recovered(me, call) then mine = true end
  -- Recorded, and not held by this process: it is the same commit again, since the reply to the first was lost.
  local known = recorded and not mine or ARGV[i + 9] == '1' and (recorded or not exists)
  local counted = not known and redis.call('SREM', keys.forgotten, call) == 1 and ARGV[i + 9] == '1'
  if exists and not known then keep(call, ARGV[i + 1], ARGV[i + 2], ARGV[i + 8], ARGV[i + 10], ARGV[i + 11]) end
  if not known and not counted then
    if tonumber(cost) > 0 then
      tally('HINCRBY', totals, 'cost' .. target, math.floor(tonumber(cost) * 1000000 + 0.5))
    end
    tally('HINCRBY', totals, 'tokens' .. target .. ' prompt', ARGV[i + 4])
    tally('HINCRBY', totals, 'tokens' .. target .. ' completion', ARGV[i + 5])
    tally('HINCRBY', totals, 'seconds' .. target .. ' ' .. ARGV[i + 6], 1)
    tally('HINCRBY', totals, 'seconds' .. target .. ' sum', ARGV[i + 7])
  end
end
return fresh
