-- A driver releases its run or sweep, so that the next driver need not wait until this one has been silent for long.
-- ARGV: ttl, token
if ARGV[2] == '' or redis.call('HGET', keys.meta, 'driver') ~= ARGV[2] then return 0, true end
release()
return 1
