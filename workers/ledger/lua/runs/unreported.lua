-- Stores that a worker could not make a report, with host and reason. ARGV: ttl, token, worker, host, reason, most entries
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return 0, true end
store_failure(ARGV[3], ARGV[4], 'report', ARGV[5], tonumber(ARGV[6]))
return 1, true
