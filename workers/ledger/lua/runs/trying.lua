-- Notes the range of a chunk that is about to be tried in a process of its own. ARGV: ttl, token, seq, range
redis.call('HSET', keys.notes, 'trying ' .. ARGV[3], ARGV[4])
return 1
