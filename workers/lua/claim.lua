-- A lease on a chunk. Returns {status} or {'leased', entry, header, blob, attempts, losses, ms since first published}, or {'held', worker, pid}.
-- ARGV: ttl, seq, epoch, worker, pid, lease ms, worker key prefix, pid known to be dead ('' for none)
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
if redis.call('HEXISTS', KEYS[3], seq) == 1 then
  redis.call('HINCRBY', KEYS[1], 'skipped', 1)
  return {'committed'}
end
local entry = redis.call('LINDEX', KEYS[2], seq)
if not entry then return {'gone'} end
local lease = lease_of(seq)
if lease then
  local mine = lease.worker == ARGV[4] and lease.pid == ARGV[8]
  if lease.deadline > now_ms() and not mine then return {'held', lease.worker, lease.pid} end
  if lease.pid ~= ARGV[5] or lease.worker ~= ARGV[4] then count_death(seq, lease, ARGV[7]) end
end
redis.call('HSET', KEYS[6], seq, (now_ms() + tonumber(ARGV[6])) .. ' ' .. ARGV[5] .. ' ' .. ARGV[4])
local header, blob = redis.call('HGET', KEYS[1], 'header'), redis.call('HGET', KEYS[9], seq)
local waited = now_ms() - tonumber(redis.call('ZSCORE', KEYS[11], seq) or now_ms())
return {'leased', entry, header, blob, note('attempts', seq), note('losses', seq), waited}
