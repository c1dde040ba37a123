-- Opens a finished run again without the answers of some chunks. Returns -1 for an unknown run, -2 for a cancelled one.
-- ARGV: ttl, token, (seq, records, dead ones of them)...
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return -1 end
local other = driven()
if other then return other, true end
if redis.call('HGET', keys.meta, 'state') == 'cancelled' then return -2 end
for i = 3, #ARGV, 3 do
  if redis.call('HEXISTS', keys.digests, ARGV[i]) == 1 then
    count_records(-ARGV[i + 1])
    redis.call('HDEL', keys.digests, ARGV[i])
    redis.call('HDEL', keys.parts, ARGV[i])
    -- Totals only go up: the count of the chunk stays, and its next answer adds only the rest.
    redis.call('HSET', keys.aside, 'counted ' .. ARGV[i], ARGV[i + 1] - ARGV[i + 2])
  end
end
recount()
redis.call('HSET', keys.meta, 'state', 'open', 'reason', '', 'dead', 0)
redis.call('HDEL', keys.meta, 'reported')
redis.call('DEL', keys.final)
list(tonumber(ARGV[1]))
return 0
