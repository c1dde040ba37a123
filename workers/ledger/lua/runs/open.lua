-- A run's header, once, and who drives it; a higher epoch reopens the run, and each driver has one of its own. Returns
-- {'open', epoch}; nothing changes where another header is there {'differs', that header}, or another key {'keyed', that
-- key}, or a driver that was heard of lately, or a report for one who has nothing of the run.
-- ARGV: ttl, token ('': nobody's), run, header, epoch, evaluator, suite, how many suites are counted, name for the
-- others, code version, queue, ms that a silent driver keeps it, epoch that this driver has it in, driver that is known
-- to be gone, 1 where this driver has nothing of the run yet, key of the chunks' digests, 1 where what is there under
-- another key has to go
local meta, token = keys.meta, ARGV[2]
local run, header, wanted, evaluator, suite, most_suites, other_suites, code, queue, driver_ms, had, gone, fresh, key,
  stays = unpack(ARGV, 3, 17)
wanted = tonumber(wanted)
local stored = redis.call('HGET', meta, 'header')
local keyed = stored and redis.call('HGET', keys.key, 'key')
local goes = stays == '1' and keyed and keyed ~= key
if stored and stored ~= header and not goes then return {'differs', stored}, true end
local epoch = tonumber(redis.call('HGET', meta, 'epoch') or '-1')
local driver = redis.call('HGET', meta, 'driver')
if driver and driver ~= token then
  local now, at = now_ms(), tonumber(redis.call('HGET', meta, 'driver_at') or '0')
  if at > now then  -- the clock was set back: it is silent from now on
    at = now
    redis.call('HSET', meta, 'driver_at', now)
  end
  -- A server with an older epoch than the one this driver has is an older state of it: its driver is this one.
  local silent = driver == gone or now - at >= tonumber(driver_ms)
  if not silent and epoch >= tonumber(had) then return redis.error_reply('DRIVEN ' .. driver), true end
end
if fresh == '1' and redis.call('HGET', meta, 'state') == 'done' and redis.call('HEXISTS', keys.final, 'report') == 1 then
  return redis.error_reply('FINISHED'), true
end
if goes then stored = false
elseif keyed and keyed ~= key then return {'keyed', keyed}, true end
if not stored then
  -- What may be left of a run whose first key is lost fits nothing any more: its folder knows more.
  redis.call('DEL', unpack(KEYS))
  redis.call('HSET', meta, 'header', header, 'header_id', redis.sha1hex(header) .. ' ' .. #header)
  redis.call('HSET', meta, 'code', code, 'queue', queue)
  redis.call('HSET', meta, 'state', 'open', 'chunks', 0, 'cursor', 0, 'created', now_ms())
  if epoch >= 0 then redis.call('HSET', meta, 'epoch', epoch) end
  if redis.call('SADD', shared.suites, suite) == 1 and redis.call('SCARD', shared.suites) > tonumber(most_suites) then
    redis.call('SREM', shared.suites, suite)
    suite = other_suites
  end
  redis.call('HSET', meta, 'label', ' ' .. evaluator .. ' ' .. suite)
end
redis.call('HSET', keys.key, 'key', key)
release()
if token ~= '' then redis.call('HSET', meta, 'driver', token, 'driver_at', now_ms()) end
if token ~= '' and epoch >= 0 then wanted = math.max(wanted, epoch + 1) end
if wanted > epoch then
  epoch = wanted
  redis.call('HSET', meta, 'epoch', epoch, 'cursor', 0)
  redis.call('HDEL', meta, 'detached', 'failures', 'finals', 'unserved')
  -- Messages and leases of former epochs are void from now on: every chunk without an answer is published again.
  redis.call('DEL', keys.flight, keys.leases, keys.notes, keys.refused, keys.sent, keys.failures)
  local state = redis.call('HGET', meta, 'state')
  if state ~= 'done' and state ~= 'cancelled' then redis.call('HSET', meta, 'state', 'open', 'reason', '') end
end
recount()
list(tonumber(ARGV[1]))
return {'open', epoch}
