-- The next chunks to publish, as many as the window has room for. Returns their numbers.
-- ARGV: ttl, window, most
if redis.call('HGET', KEYS[1], 'state') ~= 'open' then return {}, true end
local room = math.min(tonumber(ARGV[2]) - redis.call('ZCARD', KEYS[5]), tonumber(ARGV[3]))
local cursor = tonumber(redis.call('HGET', KEYS[1], 'cursor'))
local chunks = tonumber(redis.call('HGET', KEYS[1], 'chunks'))
local taken = {}
while room > 0 and cursor < chunks do
  if redis.call('HEXISTS', KEYS[3], cursor) == 0 then
    redis.call('ZADD', KEYS[5], now_ms(), cursor)
    redis.call('ZADD', KEYS[11], 'NX', now_ms(), cursor)
    table.insert(taken, cursor)
    room = room - 1
  end
  cursor = cursor + 1
end
redis.call('HSET', KEYS[1], 'cursor', cursor)
return taken, #taken == 0
