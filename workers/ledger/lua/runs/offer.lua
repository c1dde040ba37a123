-- Offers refused chunks of a run that nobody drives again, as far as the window has room: at once, or after a pause that
-- doubles while no answer is committed. Returns their numbers. ARGV: ttl, token, window, driver ms, 1 for at once
local now, window, driver_ms, at_once = now_ms(), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
if redis.call('HGET', keys.meta, 'state') ~= 'open' or not left_alone(now, driver_ms) then return {}, true end
local committed = redis.call('HGET', keys.meta, 'committed') or '0'
local tries, at, before = string.match(redis.call('HGET', keys.failures, 'offered') or '', '^(%d+) (%d+) (%d+)$')
tries = before == committed and tonumber(tries) or 0
local due = tries == 0 or tonumber(at) > now or now - tonumber(at) >= 1000 * math.min(2 ^ tries, 32)
if not at_once and not due then return {}, true end
local room, offered = window - redis.call('ZCARD', keys.flight), {}
local refused = redis.call('HGETALL', keys.refused)
for i = 1, #refused, 2 do
  if #offered >= room then break end
  local seq = refused[i]
  redis.call('HDEL', keys.refused, seq)
  redis.call('ZADD', keys.flight, now, seq)
  table.insert(offered, seq)
end
if #offered > 0 then redis.call('HSET', keys.failures, 'offered', (tries + 1) .. ' ' .. now .. ' ' .. committed) end
return offered, true
