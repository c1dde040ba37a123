-- Puts a run on the lists for its state and takes it off all others; an expired run goes off all lists.
-- ARGV: ttl, token
list(math.max(0, redis.call('PTTL', keys.meta)))
return 0, true
