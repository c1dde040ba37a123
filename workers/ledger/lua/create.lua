-- A run's header, once, and who drives it; a higher epoch reopens the run, and each driver has one of its own. Returns
-- {'open', epoch}; nothing changes where another header is there {'differs', that header}, or a driver that was heard of
-- lately {'driven', driver}, or a report for one who has nothing of the run {'finished'}.
-- ARGV: ttl, token ('': nobody's), header, epoch, evaluator, suite, key of the suites that are counted, most of them,
-- name for the others, code version, queue, run, key of the runs, ms that a silent driver keeps it, epoch that this driver
-- has it in, driver that is known to be gone, whether this driver has nothing of the run yet
local meta, token = KEYS[1], ARGV[2]
local stored = redis.call('HGET', meta, 'header')
if stored and stored ~= ARGV[3] then return {'differs', stored}, true end
local epoch = tonumber(redis.call('HGET', meta, 'epoch') or '-1')
local driver = redis.call('HGET', meta, 'driver')
if driver and driver ~= token then
  local now, at = now_ms(), tonumber(redis.call('HGET', meta, 'driver_at') or '0')
  if at > now then  -- the clock was set back: it is silent from now on
    at = now
    redis.call('HSET', meta, 'driver_at', now)
  end
  -- A server with an older epoch than the one this driver has is an older state of it: its driver is this one.
  local silent = driver == ARGV[16] or now - at >= tonumber(ARGV[14])
  if not silent and epoch >= tonumber(ARGV[15]) then return {'driven', driver}, true end
end
if ARGV[17] == '1' and redis.call('HGET', meta, 'state') == 'done' and redis.call('HEXISTS', KEYS[12], 'report') == 1 then
  return {'finished'}, true
end
if not stored then
  -- What may be left of a run whose first key is lost fits nothing any more: its folder knows more.
  redis.call('DEL', unpack(KEYS))
  redis.call('HSET', meta, 'header', ARGV[3], 'header_id', redis.sha1hex(ARGV[3]) .. ' ' .. #ARGV[3])
  redis.call('HSET', meta, 'code', ARGV[10], 'queue', ARGV[11])
  redis.call('HSET', meta, 'state', 'open', 'chunks', 0, 'cursor', 0, 'created', now_ms())
  if epoch >= 0 then redis.call('HSET', meta, 'epoch', epoch) end
  local suite = ARGV[6]
  if redis.call('SADD', ARGV[7], suite) == 1 and redis.call('SCARD', ARGV[7]) > tonumber(ARGV[8]) then
    redis.call('SREM', ARGV[7], suite)
    suite = ARGV[9]
  end
  redis.call('HSET', meta, 'label', ' ' .. ARGV[5] .. ' ' .. suite)
end
redis.call('HSET', ARGV[13], ARGV[12], ARGV[11])
hand_over()
if token ~= '' then redis.call('HSET', meta, 'driver', token, 'driver_at', now_ms()) end
local wanted = tonumber(ARGV[4])
if token ~= '' and epoch >= 0 then wanted = math.max(wanted, epoch + 1) end
if wanted > epoch then
  epoch = wanted
  redis.call('HSET', meta, 'epoch', epoch, 'cursor', 0)
  redis.call('HDEL', meta, 'detached', 'failures', 'unserved')
  redis.call('DEL', KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[11], KEYS[13])
  local state = redis.call('HGET', meta, 'state')
  if state ~= 'done' and state ~= 'cancelled' then redis.call('HSET', meta, 'state', 'open', 'reason', '') end
end
recount()
return {'open', epoch}
