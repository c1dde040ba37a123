-- Chunks about to be published again: each waits twice as long as before until it is suspect again.
-- Returns the numbers that are still wanted. ARGV: ttl, worker key prefix, (seq, reason)...
local wanted = {}
for i = 3, #ARGV, 2 do
  local seq, reason = ARGV[i], ARGV[i + 1]
  if redis.call('HEXISTS', KEYS[3], seq) == 0 then
    local lease = lease_of(seq)
    if not lease or not lease.live then
      if lease then
        count_death(seq, lease, ARGV[2])
        redis.call('HDEL', KEYS[6], seq)
      end
      local tries = redis.call('HINCRBY', KEYS[7], 'tries ' .. seq, 1)
      redis.call('ZADD', KEYS[5], now_ms() + 1000 * (math.min(2 ^ tries, 32) - 2), seq)
      redis.call('HINCRBY', KEYS[1], 'reconciled', 1)
      count('reconciled', 1, reason)
      table.insert(wanted, seq)
    end
  end
end
return wanted
