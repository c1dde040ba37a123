-- Prolong a lease that is still this process's. Returns 1, or 0 when it is not or the run is closed.
-- ARGV: ttl, token, seq, worker, pid, lease ms
local seq, worker, pid, ms = unpack(ARGV, 3, 6)
local lease = lease_of(seq)
if not lease or lease.worker ~= worker or lease.pid ~= pid then return 0 end
-- A process that computes for a run which is over is to stop.
if redis.call('HGET', keys.meta, 'state') ~= 'open' then return 0 end
set_lease(seq, ms, pid, worker)
return 1
