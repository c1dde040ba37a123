-- Gives back the leases of a worker that shuts down; nothing died, so it counts nothing. ARGV: ttl, token, worker
local worker, released = ARGV[3], 0
local leases = redis.call('HGETALL', keys.leases)
for i = 1, #leases, 2 do
  local seq = leases[i]
  local lease = lease_of(seq)
  if lease and lease.worker == worker then
    released = released + redis.call('HDEL', keys.leases, seq)
    redis.call('HDEL', keys.notes, 'trying ' .. seq)
  end
end
return released, released == 0
