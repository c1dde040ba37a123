-- A look at a candidate by some answers of it: the same answers are the same look, others take the next number. Those of a
-- candidate that was stopped take none, since nothing is decided by them. Returns {number, draw, why it was stopped or ''}.
-- ARGV: lifetime, candidate, digest of its answers
local candidate, answers = ARGV[2], ARGV[3]
local stands = redis.call('HGET', keys.looks, 'stands ' .. candidate) or ''
local of_answers, of_candidate = 'look ' .. candidate .. ' ' .. answers, 'draws ' .. candidate
local known = redis.call('HGET', keys.looks, of_answers)
if not known and stands ~= '' then
  -- A candidate that a confirmation stopped may have had no look here before.
  local number, draws = redis.call('HGET', keys.looks, 'count') or 0, redis.call('HGET', keys.looks, of_candidate) or 0
  return {number + 1, draws + 1, stands}
end
if not known then
  known = redis.call('HINCRBY', keys.looks, 'count', 1) .. ' ' .. redis.call('HINCRBY', keys.looks, of_candidate, 1)
  redis.call('HSET', keys.looks, of_answers, known)
end
local number, draw = string.match(known, '(%d+) (%d+)')
return {tonumber(number), tonumber(draw), stands}
