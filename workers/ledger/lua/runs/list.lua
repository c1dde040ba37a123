-- Puts a run on the lists where its state has it, and off all others: also one that is gone, since it expired.
-- ARGV: ttl, token
list(math.max(0, redis.call('PTTL', keys.meta)))
return 0, true
