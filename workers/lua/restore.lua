-- Digests of chunks whose parts the run folder holds already: they count as committed and are not computed again.
-- Another reconciler may have published them since the run was created: they leave the window as by a commit.
-- ARGV: ttl, (seq, digest, records)...
local added = 0
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return -1 end
for i = 2, #ARGV, 3 do
  if redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZREM', KEYS[5], ARGV[i])
    redis.call('ZREM', KEYS[11], ARGV[i])
    for _, key in ipairs({KEYS[6], KEYS[8], KEYS[9]}) do redis.call('HDEL', key, ARGV[i]) end
    redis.call('HINCRBY', KEYS[1], 'committed', 1)
    redis.call('HINCRBY', KEYS[1], 'records', ARGV[i + 2])
    added = added + 1
  end
end
return added
