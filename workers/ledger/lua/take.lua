-- The next chunks to publish, as many as the window has room for. Returns {1 when there is more to look at, number...}.
-- ARGV: ttl, window, most, epoch that they will be published for ('': any), most chunks to look at
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if redis.call('HGET', KEYS[1], 'state') ~= 'open' or (ARGV[4] ~= '' and ARGV[4] ~= epoch) then return {0}, true end
local room = math.min(tonumber(ARGV[2]) - redis.call('ZCARD', KEYS[5]), tonumber(ARGV[3]))
local cursor = tonumber(redis.call('HGET', KEYS[1], 'cursor'))
local chunks = redis.call('LLEN', KEYS[2])
-- Once all were published, each is committed, in flight or refused; where some are none of it, what said so was lost.
local known = redis.call('HLEN', KEYS[3]) + redis.call('ZCARD', KEYS[5]) + redis.call('HLEN', KEYS[8])
if room > 0 and cursor >= chunks and known < chunks then cursor = 0 end
local answer, last = {0}, cursor + tonumber(ARGV[5])
while room > 0 and cursor < chunks and cursor < last do
  local elsewhere = redis.call('HEXISTS', KEYS[3], cursor) == 1 or redis.call('ZSCORE', KEYS[5], cursor)
  if not elsewhere and redis.call('HEXISTS', KEYS[8], cursor) == 0 then
    redis.call('ZADD', KEYS[5], now_ms(), cursor)
    redis.call('ZADD', KEYS[11], 'NX', now_ms(), cursor)
    table.insert(answer, cursor)
    room = room - 1
  end
  cursor = cursor + 1
end
redis.call('HSET', KEYS[1], 'cursor', cursor)
if room > 0 and cursor < chunks then answer[1] = 1 end
return answer, #answer == 1
