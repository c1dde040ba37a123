-- The refusal of a driver's step by anybody else, nil for the driver itself (whose step is a sign of its life) and for
-- nobody where nobody drives.
local function driven()
  local driver = redis.call('HGET', keys.meta, 'driver') or ''
  if driver ~= ARGV[2] then return redis.error_reply('DRIVEN ' .. driver) end
  if driver ~= '' then redis.call('HSET', keys.meta, 'driver_at', now_ms()) end
end
