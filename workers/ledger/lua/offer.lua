-- Refused chunks of a run that nobody drives, offered again as far as the window has room: at once, or after a pause
-- that doubles while no answer is committed. Returns their numbers. ARGV: ttl, window, driver ms, 1 for at once
local now = now_ms()
if redis.call('HGET', KEYS[1], 'state') ~= 'open' or not left_alone(now, tonumber(ARGV[3])) then return {}, true end
local committed = redis.call('HGET', KEYS[1], 'committed') or '0'
local tries, at, before = string.match(redis.call('HGET', KEYS[13], 'offered') or '', '^(%d+) (%d+) (%d+)$')
tries = before == committed and tonumber(tries) or 0
local due = tries == 0 or tonumber(at) > now or now - tonumber(at) >= 1000 * math.min(2 ^ tries, 32)
if ARGV[4] ~= '1' and not due then return {}, true end
local room, offered = tonumber(ARGV[2]) - redis.call('ZCARD', KEYS[5]), {}
local refused = redis.call('HGETALL', KEYS[8])
for i = 1, #refused, 2 do
  if #offered >= room then break end
  local seq = refused[i]
  redis.call('HDEL', KEYS[8], seq)
  redis.call('ZADD', KEYS[5], now, seq)
  table.insert(offered, seq)
end
if #offered > 0 then redis.call('HSET', KEYS[13], 'offered', (tries + 1) .. ' ' .. now .. ' ' .. committed) end
return offered, true
