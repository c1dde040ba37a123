-- A report that a worker could not make, with host and reason. ARGV: ttl, worker, host, reason, most entries
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return 0, true end
tell_failure(ARGV[2], ARGV[3], 'report', ARGV[4], tonumber(ARGV[5]))
return 1, true
