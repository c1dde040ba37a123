-- The server's clock, the only one that the ledger and the rate limiter use.
local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local function now_ms() return math.floor(now_us() / 1000) end
