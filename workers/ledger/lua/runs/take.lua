-- Takes the next chunks to publish, as many as the window has room for. Returns {1 if there are more to check, number...}.
-- ARGV: ttl, token, epoch to publish them for ('': any), window, most, most chunks to check
local wanted_epoch, window, most, most_checked = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local epoch = redis.call('HGET', keys.meta, 'epoch')
if redis.call('HGET', keys.meta, 'state') ~= 'open' or (wanted_epoch ~= '' and wanted_epoch ~= epoch) then return {0}, true end
local room = math.min(window - redis.call('ZCARD', keys.flight), most)
local cursor = tonumber(redis.call('HGET', keys.meta, 'cursor'))
local chunks = redis.call('LLEN', keys.chunks)
-- Once all were published, each is committed, in flight or refused; if some are not, their entry was lost.
local known = redis.call('HLEN', keys.digests) + redis.call('ZCARD', keys.flight) + redis.call('HLEN', keys.refused)
if room > 0 and cursor >= chunks and known < chunks then cursor = 0 end
local answer, last = {0}, cursor + most_checked
while room > 0 and cursor < chunks and cursor < last do
  local elsewhere = redis.call('HEXISTS', keys.digests, cursor) == 1 or redis.call('ZSCORE', keys.flight, cursor)
  if not elsewhere and redis.call('HEXISTS', keys.refused, cursor) == 0 then
    redis.call('ZADD', keys.flight, now_ms(), cursor)
    redis.call('ZADD', keys.sent, 'NX', now_ms(), cursor)
    table.insert(answer, cursor)
    room = room - 1
  end
  cursor = cursor + 1
end
redis.call('HSET', keys.meta, 'cursor', cursor)
if room > 0 and cursor < chunks then answer[1] = 1 end
return answer, #answer == 1
