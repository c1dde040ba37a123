-- Prolong a lease that is still this process's. Returns 1, or 0 when it is not or the run is closed.
-- ARGV: ttl, seq, worker, pid, lease ms
local lease = lease_of(ARGV[2])
if not lease or lease.worker ~= ARGV[3] or lease.pid ~= ARGV[4] then return 0 end
if redis.call('HGET', KEYS[1], 'state') ~= 'open' then return 0 end
set_lease(ARGV[2], ARGV[5], ARGV[4], ARGV[3])
return 1
