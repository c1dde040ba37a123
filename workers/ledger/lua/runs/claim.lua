-- Leases a chunk. Returns {status}, {'held', worker, pid}, {'other', code version of the run}, or {'leased', entry,
-- header's id, header ('' if the worker has it), key, blob, attempts, losses, ms since first published}.
-- ARGV: ttl, token, run, seq, epoch, worker, pid, lease ms, pid known to be dead ('' for none), code version of the worker
-- ('': any), id of the header that it has ('': none)
local run, seq, epoch, worker, pid, lease_ms, dead_pid, my_code, known_id = unpack(ARGV, 3, 11)
-- The monitor finds stuck workers by this time; the key lives as long as the worker's heartbeat.
local beat = shared.worker .. worker
if redis.call('EXISTS', beat) == 1 then redis.call('HSET', beat, 'claimed', now_ms()) end
local state = redis.call('HGET', keys.meta, 'state')
if not state then return {'gone'} end
if state ~= 'open' then return {'closed'} end
if redis.call('HGET', keys.meta, 'epoch') ~= epoch then
  redis.call('HINCRBY', keys.meta, 'stale', 1)
  return {'stale'}
end
local code = redis.call('HGET', keys.meta, 'code')
if my_code ~= '' and code and code ~= my_code then return {'other', code} end
if redis.call('HEXISTS', keys.digests, seq) == 1 then
  redis.call('HINCRBY', keys.meta, 'skipped', 1)
  return {'committed'}
end
local entry, key = redis.call('LINDEX', keys.chunks, seq), redis.call('HGET', keys.key, 'key')
if not entry or not key then return {'gone'} end
local lease = lease_of(seq)
if lease then
  local mine = lease.worker == worker and lease.pid == dead_pid
  if lease.live and not mine then return {'held', lease.worker, lease.pid} end
  -- A process that claims again after a long silence is not dead.
  if lease.pid ~= pid or lease.worker ~= worker then count_death(seq, lease) end
end
set_lease(seq, lease_ms, pid, worker)
local meta = redis.call('HMGET', keys.meta, 'header_id', 'queue')
local id, queue = meta[1] or '', meta[2]
listed(run)
-- If the header's length does not match its id, another program wrote it: send it, and let the worker check it.
if tonumber(string.match(id, ' (%d+)$')) ~= redis.call('HSTRLEN', keys.meta, 'header') then id = '' end
local header = (id == '' or id ~= known_id) and redis.call('HGET', keys.meta, 'header') or ''
local blob = redis.call('HGET', keys.blobs, seq)
local waited = now_ms() - tonumber(redis.call('ZSCORE', keys.sent, seq) or now_ms())
return {'leased', entry, id, header, key, blob, note('attempts', seq), note('losses', seq), waited}
