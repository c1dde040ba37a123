-- The server's clock, in microseconds: the only one that pacing goes by.
local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
