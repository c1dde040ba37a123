-- Open a finished run again without the answers of some chunks. Returns -1 for an unknown run, -2 for a cancelled one.
-- ARGV: ttl, token, (seq, records, dead ones of them)...
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return -1 end
local other = driven_by_other(ARGV[2])
if other then return other, true end
if redis.call('HGET', KEYS[1], 'state') == 'cancelled' then return -2 end
for i = 3, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then
    count_records(-ARGV[i + 1])
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('HDEL', KEYS[4], ARGV[i])
    redis.call('HSET', KEYS[10], 'counted ' .. ARGV[i], ARGV[i + 1] - ARGV[i + 2])
  end
end
recount()
redis.call('HSET', KEYS[1], 'state', 'open', 'reason', '', 'dead', 0)
redis.call('HDEL', KEYS[1], 'reported')
redis.call('DEL', KEYS[12])
return 0
