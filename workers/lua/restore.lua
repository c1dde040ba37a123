-- Digests of chunks whose parts the run folder holds already: they count as committed and are not computed again.
-- ARGV: ttl, (seq, digest, records)...
local added = 0
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return -1 end
for i = 2, #ARGV, 3 do
  if redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('HINCRBY', KEYS[1], 'committed', 1)
    redis.call('HINCRBY', KEYS[1], 'records', ARGV[i + 2])
    added = added + 1
  end
end
return added
