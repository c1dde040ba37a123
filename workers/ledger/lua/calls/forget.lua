-- Calls to be made again: their outputs were lost between server and folder, or are errors to be tried again.
-- ARGV: ttl, token, call...
if redis.call('HEXISTS', KEYS[1], 'sweep') == 0 then return -1 end
local other = driven()
if other then return other end
for i = 3, #ARGV do
  -- What it cost is counted: it may be told again by the process that made it.
  if redis.call('SREM', KEYS[6], ARGV[i]) == 1 then redis.call('SADD', KEYS[11], ARGV[i]) end
end
redis.call('HSET', KEYS[1], 'cursor', 0)
return #ARGV - 2
