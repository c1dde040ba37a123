-- Chunk entries behind those the ledger has; repeating it changes nothing. Entries that leave a gap are not taken,
-- nor is the seal then. Returns the number of entries, -1 for a run the ledger does not know; nothing changes where the
-- plan that is there is another: {'differs', number of the entry (-1: the seal), what is there}.
-- ARGV: ttl, token, seq of the first entry, seal ('' while the plan is open), entry...
local first, end_of_plan = tonumber(ARGV[3]), ARGV[4]
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return -1 end
-- First: to whoever drives no more, what is there may be another folder's plan of the run, under another key.
local other = driven()
if other then return other, true end
local have = redis.call('LLEN', keys.chunks)
local there = #ARGV > 4 and redis.call('LRANGE', keys.chunks, first, first + #ARGV - 5) or {}
for i = 1, #there do
  if there[i] ~= ARGV[4 + i] then return {'differs', first + i - 1, there[i]}, true end
end
local seal = redis.call('HGET', keys.meta, 'seal')
if seal and ((end_of_plan ~= '' and end_of_plan ~= seal) or first + #ARGV - 4 > sealed()) then
  return {'differs', -1, seal}, true
end
local known = tonumber(redis.call('HGET', keys.meta, 'chunks') or '0')
local records = 0
for i = 5, #ARGV do
  if first + i - 5 == have then
    have = redis.call('RPUSH', keys.chunks, ARGV[i])
    -- Quotes within a text are escaped, so only the key itself reads like this. What was counted before the server lost
    -- it is not counted again.
    if have > known then records = records + tonumber(string.match(ARGV[i], '"records":(%d+)')) end
  end
end
redis.call('HSET', keys.meta, 'chunks', math.max(have, known))
if records > 0 then count('submitted', records) end
if end_of_plan ~= '' and have == first + #ARGV - 4 then redis.call('HSET', keys.meta, 'seal', end_of_plan) end
return have
