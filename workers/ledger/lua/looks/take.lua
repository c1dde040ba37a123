-- An interim look at a candidate with some of its answers: the same answers are the same look, others take the next number.
-- A stopped candidate takes none, since its further answers decide nothing. Returns {number, draw, why it was stopped or
-- ''}; 'damaged' if a count is not a number.
-- ARGV: lifetime, candidate, digest of its answers, 'peek' to read the look without taking it
local candidate, answers, peeks = ARGV[2], ARGV[3], ARGV[4] == 'peek'
local stopped = redis.call('HGET', keys.looks, 'stands ' .. candidate) or ''
local of_answers, of_candidate = 'look ' .. candidate .. ' ' .. answers, 'draws ' .. candidate
local function counted(field) return string.match(redis.call('HGET', keys.looks, field) or '0', '^%d+$') end
local known, number, draws = redis.call('HGET', keys.looks, of_answers), counted('count'), counted(of_candidate)
if not number or not draws then return 'damaged' end
if not known and (peeks or stopped ~= '') then
  -- A candidate stopped by a confirmation may have had no look here before.
  return {tonumber(number) + 1, tonumber(draws) + 1, stopped}
end
if not known then
  known = redis.call('HINCRBY', keys.looks, 'count', 1) .. ' ' .. redis.call('HINCRBY', keys.looks, of_candidate, 1)
  redis.call('HSET', keys.looks, of_answers, known)
end
local at, draw = string.match(known, '^([1-9]%d*) ([1-9]%d*)$')
if not at then return 'damaged' end
return {tonumber(at), tonumber(draw), stopped}
