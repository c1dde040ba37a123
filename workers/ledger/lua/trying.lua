-- The range of a chunk that is about to be tried in a process of its own. ARGV: ttl, seq, range
redis.call('HSET', KEYS[7], 'trying ' .. ARGV[2], ARGV[3])
return 1
