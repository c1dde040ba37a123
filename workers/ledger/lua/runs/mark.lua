-- Marks chunks that are about to be published again: each waits twice as long as before until it is suspect again.
-- Returns the chunks that are still wanted. ARGV: ttl, token, (seq, reason)...
local wanted = {}
for i = 3, #ARGV, 2 do
  local seq, reason = ARGV[i], ARGV[i + 1]
  if redis.call('HEXISTS', keys.digests, seq) == 0 then
    local lease = lease_of(seq)
    if not lease or not lease.live then
      if lease then
        count_death(seq, lease)
        redis.call('HDEL', keys.leases, seq)
      end
      local tries = redis.call('HINCRBY', keys.notes, 'tries ' .. seq, 1)
      redis.call('ZADD', keys.flight, now_ms() + 1000 * (math.min(2 ^ tries, 32) - 2), seq)
      redis.call('HINCRBY', keys.meta, 'reconciled', 1)
      count('reconciled', 1, reason)
      table.insert(wanted, seq)
    end
  end
end
return wanted
