-- Lets the workers go on with a paused run that was left to them. Returns its state then; others stay as they are.
-- ARGV: ttl, token, run
local state, detached = unpack(redis.call('HMGET', keys.meta, 'state', 'detached'))
if not state then return 'gone', true end
if state ~= 'paused' or not detached then return state, true end
redis.call('HSET', keys.meta, 'state', 'open', 'reason', '')
list(tonumber(ARGV[1]))
return 'open'
