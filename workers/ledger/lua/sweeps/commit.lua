-- What became of calls; the first output of each stays, a later one was paid for twice. A fatal failure (a spent quota,
-- a wrong key) is no output: it stops the sweep, and its call is made when the sweep goes on. An output that comes
-- after all of a call that was counted as lost takes it from those. What was paid in all is in what the process tells
-- of itself: an output that is told once more counts in the totals of all sweeps, where it was lost and not merely
-- forgotten.
-- ARGV: ttl, token, holder, what it has made ('name tally' or ''), target, (call, kind of failure or '', fatal reason
-- or '', cost, prompt tokens, completion tokens, latency bucket, latency in microseconds, output, 1 when told once
-- more, 'told' or 'untold' where it was answered and what that cost is known or not)... Returns how many were new.
-- Costs in totals are in millionths.
local me, totals, target, fresh = ARGV[3], shared.calls, ' ' .. ARGV[5], 0
told(ARGV[4])
local there = redis.call('HEXISTS', keys.meta, 'sweep') == 1
local function keep(call, kind, fatal, output, cost_is)
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
    redis.call('RPUSH', keys.outbox, output)
    redis.call('HINCRBY', keys.meta, 'recorded', 1)
    if cost_is ~= '' then redis.call('HINCRBY', keys.meta, cost_is, 1) end
    if kind ~= '' then
      redis.call('HINCRBY', keys.meta, 'errors', 1)
      tally('HINCRBY', totals, 'failed' .. target .. ' ' .. kind, 1)
    else
      tally('HINCRBY', totals, 'answered' .. target, 1)
    end
  end
end
for i = 6, #ARGV, 11 do
  local call, cost = ARGV[i], ARGV[i + 3]
  local recorded, mine = redis.call('SISMEMBER', keys.recorded, call) == 1, redis.call('HGET', keys.held, call) == me
  if mine then let_go(call) end
  if recovered(me, call) then mine = true end
  -- Recorded, and this process's no more: it is told so once more, since the answer to the first time was lost.
  local known = recorded and not mine or ARGV[i + 9] == '1' and (recorded or not there)
  local counted = not known and redis.call('SREM', keys.forgotten, call) == 1 and ARGV[i + 9] == '1'
  if there and not known then keep(call, ARGV[i + 1], ARGV[i + 2], ARGV[i + 8], ARGV[i + 10]) end
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
