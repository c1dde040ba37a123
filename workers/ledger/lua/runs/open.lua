-- Stores a run's header once, and its driver; a higher epoch reopens the run, and each driver has its own epoch. Returns
-- {'open', epoch}. It changes nothing if the ledger has another header {'differs', that header}, another key {'keyed', that
-- key}, a driver that was heard of lately, or a report while this driver has nothing of the run.
-- ARGV: ttl, token ('': no driver), run, header, epoch, evaluator, suite, most suites that are counted by name, name for
-- the others, code version, queue, ms that a silent driver keeps it, this driver's present epoch of it, driver that is
-- known to be gone, 1 if this driver has nothing of the run yet, key of the chunks' digests, 1 if a plan under another key
-- must go
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
  if at > now then  -- the clock was set back: count its silence from now on
    at = now
    redis.call('HSET', meta, 'driver_at', now)
  end
  -- A server with an older epoch than this driver's was restored to an older state: this process is its driver.
  local silent = driver == gone or now - at >= tonumber(driver_ms)
  if not silent and epoch >= tonumber(had) then return redis.error_reply('DRIVEN ' .. driver), true end
end
if fresh == '1' and redis.call('HGET', meta, 'state') == 'done' and redis.call('HEXISTS', keys.final, 'report') == 1 then
  return redis.error_reply('FINISHED'), true
end
if goes then stored = false
elseif keyed and keyed ~= key then return {'keyed', keyed}, true end
if not stored then
  -- If the first key is lost, remains of the run are useless: its folder knows more.
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
  -- Messages and leases of earlier epochs are void now: every chunk without an answer is published again.
  redis.call('DEL', keys.flight, keys.leases, keys.notes, keys.refused, keys.sent, keys.failures)
  local state = redis.call('HGET', meta, 'state')
  if state ~= 'done' and state ~= 'cancelled' then redis.call('HSET', meta, 'state', 'open', 'reason', '') end
end
recount()
list(tonumber(ARGV[1]))
return {'open', epoch}
