-- Chunk entries behind those the ledger has; repeating it changes nothing. Entries that leave a gap are not taken,
-- nor is the seal then. Returns the number of entries, or -1 for a run the ledger does not know.
-- ARGV: ttl, seq of the first entry, seal ('' while the plan is open), entry...
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return -1 end
local have = redis.call('LLEN', KEYS[2])
local records = 0
for i = 4, #ARGV do
  if tonumber(ARGV[2]) + i - 4 == have then
    have = redis.call('RPUSH', KEYS[2], ARGV[i])
    -- Quotes within a text are escaped, so only the key itself reads like this.
    records = records + tonumber(string.match(ARGV[i], '"records":(%d+)'))
  end
end
redis.call('HSET', KEYS[1], 'chunks', have)
if records > 0 then count('submitted', records) end
if ARGV[3] ~= '' and have == tonumber(ARGV[2]) + #ARGV - 3 then redis.call('HSET', KEYS[1], 'seal', ARGV[3]) end
return have
