-- A driver leaves its run or sweep to whoever comes next, who need not wait until it has been silent for long.
-- ARGV: ttl, token
if ARGV[2] == '' or redis.call('HGET', keys.meta, 'driver') ~= ARGV[2] then return 0, true end
release()
return 1
