-- The error for anybody else who takes a driver's step; nil for the driver itself (whose step is a sign of its life), and
-- for a step without a token while nobody drives.
local function driven()
  local driver = redis.call('HGET', keys.meta, 'driver') or ''
  if driver ~= ARGV[2] then return redis.error_reply('DRIVEN ' .. driver) end
  if driver ~= '' then redis.call('HSET', keys.meta, 'driver_at', now_ms()) end
end
-- Adds to a counter of the whole ledger. A counter that somebody else wrote over counts nothing: an answer that comes with
-- the step must not be refused because of that, or it would be given again for ever.
local function tally(...)
  local found = redis.pcall(...)
  local failed = type(found) == 'table' and found.err
  if not failed or string.find(failed, 'WRONGTYPE', 1, true) or string.find(failed, 'not an integer', 1, true) then return end
  redis.call(...)
end
