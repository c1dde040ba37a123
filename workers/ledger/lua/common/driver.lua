-- The refusal of a driver's step by anybody else, nil for the driver itself (whose step is a sign of its life) and for
-- nobody where nobody drives.
local function driven()
  local driver = redis.call('HGET', keys.meta, 'driver') or ''
  if driver ~= ARGV[2] then return redis.error_reply('DRIVEN ' .. driver) end
  if driver ~= '' then redis.call('HSET', keys.meta, 'driver_at', now_ms()) end
end
-- A step of a counter over the whole ledger. One that is none any more, since somebody else wrote there, counts nothing:
-- an answer that came with it must not be refused for that, and given again for ever.
local function tally(...)
  local found = redis.pcall(...)
  local failed = type(found) == 'table' and found.err
  if not failed or string.find(failed, 'WRONGTYPE', 1, true) or string.find(failed, 'not an integer', 1, true) then return end
  redis.call(...)
end
