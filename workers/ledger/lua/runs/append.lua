-- Appends chunk entries; repeating it changes nothing. It takes no entries that leave a gap, and then no seal. Returns the
-- number of entries, -1 for an unknown run; if the stored plan is another one, it changes nothing and returns {'differs',
-- number of the entry (-1: the seal), the stored one}.
-- ARGV: ttl, token, seq of the first entry, seal ('' while the plan is open), entry...
local first, end_of_plan = tonumber(ARGV[3]), ARGV[4]
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return -1 end
-- Check the driver first: for a former driver, the stored plan may be another folder's, under another key.
local other = driven()
if other then return other, true end
local have = redis.call('LLEN', keys.chunks)
local stored = #ARGV > 4 and redis.call('LRANGE', keys.chunks, first, first + #ARGV - 5) or {}
for i = 1, #stored do
  if stored[i] ~= ARGV[4 + i] then return {'differs', first + i - 1, stored[i]}, true end
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
    -- Quotes within a text are escaped, so only the key itself matches. Records that were counted before the server lost
    -- the entry are not counted again.
    if have > known then records = records + tonumber(string.match(ARGV[i], '"records":(%d+)')) end
  end
end
redis.call('HSET', keys.meta, 'chunks', math.max(have, known))
if records > 0 then count('submitted', records) end
if end_of_plan ~= '' and have == first + #ARGV - 4 then redis.call('HSET', keys.meta, 'seal', end_of_plan) end
return have
