-- Prolongs a lease of this process. Returns 1, or 0 if it is not this process's any more or the run is closed.
-- ARGV: ttl, token, seq, worker, pid, lease ms
local seq, worker, pid, ms = unpack(ARGV, 3, 6)
local lease = lease_of(seq)
if not lease or lease.worker ~= worker or lease.pid ~= pid then return 0 end
-- A process must stop computing for a run that is over.
if redis.call('HGET', keys.meta, 'state') ~= 'open' then return 0 end
set_lease(seq, ms, pid, worker)
return 1
