-- Stores digests of chunks whose parts the run folder has: they count as committed and are not computed again. A
-- reconciler may have published them since the run was created, so they leave the window as by a commit.
-- ARGV: ttl, token, (seq, digest, records)...
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return -1 end
local other = driven()
if other then return other, true end
local added = 0
for i = 3, #ARGV, 3 do
  if redis.call('HEXISTS', keys.digests, ARGV[i]) == 0 then
    -- Before the digest is stored, as in a commit.
    count_records(ARGV[i + 2])
    redis.call('HSET', keys.digests, ARGV[i], ARGV[i + 1])
    redis.call('ZREM', keys.flight, ARGV[i])
    redis.call('ZREM', keys.sent, ARGV[i])
    for _, key in ipairs({keys.leases, keys.refused, keys.blobs}) do redis.call('HDEL', key, ARGV[i]) end
    added = added + 1
  end
end
recount()
return added
