-- Lets the fleet go on with a paused sweep that was left to it. Returns its state then; others stay as they are.
-- ARGV: ttl, token, run
local run, state = ARGV[3], redis.call('HGET', keys.meta, 'state')
if not state then return 'gone', true end
if state ~= 'paused' or redis.call('HEXISTS', shared.unattended, run) == 0 then return state, true end
redis.call('HSET', keys.meta, 'state', 'open', 'reason', '', 'attended', now_ms())
redis.call('ZREM', shared.closed, run)
redis.call('HSET', shared.sweeps, run, redis.call('HGET', keys.meta, 'sweep'))
return 'open'
