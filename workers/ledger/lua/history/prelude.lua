-- The score of a new member of the index: above all others, also those from before the server's clock was set back. By
-- the highest one a reader knows whether anything changed, and the lowest ones make room.
local function newest()
  local last = redis.call('ZRANGE', shared.histories, -1, -1, 'WITHSCORES')
  return string.format('%d', math.max(now_us(), tonumber(last[2] or '0') + 1))
end
