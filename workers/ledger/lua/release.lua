-- Give back the leases of a worker that ends in good order: nothing died, so nothing is counted. ARGV: ttl, worker
local released = 0
local leases = redis.call('HGETALL', KEYS[6])
for i = 1, #leases, 2 do
  local seq = leases[i]
  local lease = lease_of(seq)
  if lease and lease.worker == ARGV[2] then
    released = released + redis.call('HDEL', KEYS[6], seq)
    redis.call('HDEL', KEYS[7], 'trying ' .. seq)
  end
end
return released
