-- The score of a new member of the index: above all others, even if the server's clock was set back. Readers see by the
-- highest score whether anything changed; members with the lowest scores make room.
local function newest()
  local last = redis.call('ZRANGE', shared.histories, -1, -1, 'WITHSCORES')
  return string.format('%d', math.max(now_us(), tonumber(last[2] or '0') + 1))
end
