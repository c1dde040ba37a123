-- A look at a candidate by some answers of it: the same answers are the same look, others take the next number. Those of a
-- candidate that was stopped take none, since nothing is decided by them. Returns {number, draw, why it was stopped or ''};
-- 'damaged' where the count is not a number.
-- ARGV: lifetime, candidate, digest of its answers, 'peek' to be told the look without taking it
local candidate, answers, peeks = ARGV[2], ARGV[3], ARGV[4] == 'peek'
local stands = redis.call('HGET', keys.looks, 'stands ' .. candidate) or ''
local of_answers, of_candidate = 'look ' .. candidate .. ' ' .. answers, 'draws ' .. candidate
local function counted(field) return string.match(redis.call('HGET', keys.looks, field) or '0', '^%d+$') end
local known, number, draws = redis.call('HGET', keys.looks, of_answers), counted('count'), counted(of_candidate)
if not number or not draws then return 'damaged' end
if not known and (peeks or stands ~= '') then
  -- A candidate that a confirmation stopped may have had no look here before.
  return {tonumber(number) + 1, tonumber(draws) + 1, stands}
end
if not known then
  known = redis.call('HINCRBY', keys.looks, 'count', 1) .. ' ' .. redis.call('HINCRBY', keys.looks, of_candidate, 1)
  redis.call('HSET', keys.looks, of_answers, known)
end
local at, draw = string.match(known, '^([1-9]%d*) ([1-9]%d*)$')
if not at then return 'damaged' end
return {tonumber(at), tonumber(draw), stands}
