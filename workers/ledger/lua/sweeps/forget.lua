-- Lets calls be made again: their outputs were lost between server and folder, or are errors to retry.
-- ARGV: ttl, token, call...
if redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return -1 end
local other = refused()
if other then return other end
for i = 3, #ARGV do
  -- Its cost stays counted: the process that made it may resend the output.
  if redis.call('SREM', keys.recorded, ARGV[i]) == 1 then redis.call('SADD', keys.forgotten, ARGV[i]) end
end
redis.call('HSET', keys.meta, 'cursor', 0)
return #ARGV - 2
