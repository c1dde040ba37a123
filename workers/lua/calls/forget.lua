-- Calls to be made again: their outputs were lost between server and folder, or are errors to be tried again.
-- ARGV: ttl, call...
for i = 2, #ARGV do redis.call('SREM', KEYS[6], ARGV[i]) end
redis.call('HSET', KEYS[1], 'cursor', 0)
return #ARGV - 1
