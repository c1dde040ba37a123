-- A run's header, once; a higher epoch reopens the run. Returns {epoch, state}.
-- ARGV: ttl, header, epoch, evaluator, suite, key of the suites that are counted, most of them, name for the others
local meta = KEYS[1]
local epoch = tonumber(redis.call('HGET', meta, 'epoch') or '-1')
if epoch < 0 then
  redis.call('HSET', meta, 'header', ARGV[2], 'state', 'open', 'chunks', 0, 'cursor', 0)
  local suite = ARGV[5]
  if redis.call('SADD', ARGV[6], suite) == 1 and redis.call('SCARD', ARGV[6]) > tonumber(ARGV[7]) then
    redis.call('SREM', ARGV[6], suite)
    suite = ARGV[8]
  end
  redis.call('HSET', meta, 'label', ' ' .. ARGV[4] .. ' ' .. suite)
end
if tonumber(ARGV[3]) > epoch then
  epoch = tonumber(ARGV[3])
  redis.call('HSET', meta, 'epoch', epoch, 'cursor', 0)
  redis.call('HDEL', meta, 'detached', 'failures', 'unserved')
  redis.call('DEL', KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[11], KEYS[13])
  local state = redis.call('HGET', meta, 'state')
  if state ~= 'done' and state ~= 'cancelled' then redis.call('HSET', meta, 'state', 'open', 'reason', '') end
end
return {epoch, redis.call('HGET', meta, 'state')}
