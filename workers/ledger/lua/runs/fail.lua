-- Counts a worker's failure at a chunk, by chunk and by worker; the chunk is offered again, with a longer pause each time.
-- An unreadable input is no failure while the producer is there to send the bytes. Returns whether it counted.
-- ARGV: ttl, token, seq, epoch, worker, host, kind, reason, grace ms, driver ms, most entries
local seq, epoch, worker, host, kind, reason = unpack(ARGV, 3, 8)
local grace_ms, driver_ms, most = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local now = now_ms()
if redis.call('HGET', keys.meta, 'state') ~= 'open' or redis.call('HGET', keys.meta, 'epoch') ~= epoch then return 0 end
if redis.call('HEXISTS', keys.digests, seq) == 1 then return 0 end
local unread = kind == 'input'
if unread and not left_alone(now, driver_ms) then return 0 end
local lease = lease_of(seq)
if lease and lease.worker == worker then redis.call('HDEL', keys.leases, seq) end
-- If the list is full, entries of chunks that are committed by now make room.
local function full() return redis.call('HLEN', keys.failures) >= most end
if full() then
  local entries = redis.call('HGETALL', keys.failures)
  for i = 1, #entries, 2 do
    local done = string.match(entries[i], '^chunk (%d+) ')
    if done and redis.call('HEXISTS', keys.digests, done) == 1 then redis.call('HDEL', keys.failures, entries[i]) end
  end
end
local function add(field)
  if not full() or redis.call('HEXISTS', keys.failures, field) == 1 then
    redis.call('HINCRBY', keys.failures, field, 1)
  end
end
local tries = 0
if unread then
  add('unread ' .. worker)
elseif kind ~= 'load' then
  add('chunk ' .. seq .. ' ' .. worker)
  tries = redis.call('HINCRBY', keys.notes, 'failed ' .. seq, 1)
end
local committed = tonumber(redis.call('HGET', keys.meta, 'committed') or '0')
local at = string.match(redis.call('HGET', keys.failures, 'barren') or '', '^(%d+) ')
if tonumber(at) ~= committed then redis.call('HSET', keys.failures, 'barren', committed .. ' ' .. now) end
store_failure(worker, host, kind, reason, most)
if not unread then
  redis.call('HDEL', keys.notes, 'tries ' .. seq)
  local wait = tries > 4 and 1000 * math.min(2 ^ (tries - 5), 32) or 0
  -- Minus the grace, since no message was lost: after its pause the chunk is suspect at once.
  redis.call('ZADD', keys.flight, now + wait - grace_ms, seq)
end
return 1, true
