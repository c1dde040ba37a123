-- Keeps the conversation of a call so far, for a process that goes on with it. Returns 1, or 0 if the process does not hold
-- the call any more.
-- ARGV: ttl, token, holder, call, its attempts in this hold that the conversation has, the conversation, all its attempts,
-- what they cost
if redis.call('HGET', keys.held, ARGV[4]) ~= ARGV[3] then return 0 end
redis.call('HSET', keys.talks, ARGV[4], ARGV[6])
redis.call('HSET', keys.kept, ARGV[4], ARGV[5])
talk_cost(ARGV[4], tonumber(ARGV[7]), tonumber(ARGV[8]))
return 1
