-- Where the index has what was added just now: behind all others, also of before the server's clock was set back. By the
-- last one whoever looks knows whether anything changed, and the first ones make room.
local function newest()
  local last = redis.call('ZRANGE', shared.histories, -1, -1, 'WITHSCORES')
  return string.format('%d', math.max(now_us(), tonumber(last[2] or '0') + 1))
end
