-- A lease on a chunk. Returns {status}, {'held', worker, pid}, {'other', code version of the run}, or {'leased', entry,
-- header's id, header ('' where the worker has it), blob, attempts, losses, ms since first published}.
-- ARGV: ttl, seq, epoch, worker, pid, lease ms, worker key prefix, pid known to be dead ('' for none), code version of the
-- worker ('': any), id of the header that it has ('': none), run, key of the runs
local seq = ARGV[2]
-- A worker that takes nothing though there is work is seen by this; its key lives as long as its heartbeat.
local beat = ARGV[7] .. ARGV[4]
if redis.call('EXISTS', beat) == 1 then redis.call('HSET', beat, 'claimed', now_ms()) end
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return {'gone'} end
if state ~= 'open' then return {'closed'} end
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'stale', 1)
  return {'stale'}
end
local code = redis.call('HGET', KEYS[1], 'code')
if ARGV[9] ~= '' and code and code ~= ARGV[9] then return {'other', code} end
if redis.call('HEXISTS', KEYS[3], seq) == 1 then
  redis.call('HINCRBY', KEYS[1], 'skipped', 1)
  return {'committed'}
end
local entry = redis.call('LINDEX', KEYS[2], seq)
if not entry then return {'gone'} end
local lease = lease_of(seq)
if lease then
  local mine = lease.worker == ARGV[4] and lease.pid == ARGV[8]
  if lease.live and not mine then return {'held', lease.worker, lease.pid} end
  if lease.pid ~= ARGV[5] or lease.worker ~= ARGV[4] then count_death(seq, lease, ARGV[7]) end
end
set_lease(seq, ARGV[6], ARGV[5], ARGV[4])
local meta = redis.call('HMGET', KEYS[1], 'header_id', 'queue')
local id, queue = meta[1] or '', meta[2]
if queue then redis.call('HSET', ARGV[12], ARGV[11], queue) end  -- a run that is computed is on the list of runs
-- A header that is not as long as its id says was written by somebody else: it is sent, for the worker to judge.
if tonumber(string.match(id, ' (%d+)$')) ~= redis.call('HSTRLEN', KEYS[1], 'header') then id = '' end
local header = (id == '' or id ~= ARGV[10]) and redis.call('HGET', KEYS[1], 'header') or ''
local blob = redis.call('HGET', KEYS[9], seq)
local waited = now_ms() - tonumber(redis.call('ZSCORE', KEYS[11], seq) or now_ms())
return {'leased', entry, id, header, blob, note('attempts', seq), note('losses', seq), waited}
