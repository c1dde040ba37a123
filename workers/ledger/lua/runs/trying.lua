-- Notes the range of a chunk that a worker is about to try in a separate process. ARGV: ttl, token, seq, range
redis.call('HSET', keys.notes, 'trying ' .. ARGV[3], ARGV[4])
return 1
