-- The error if another process takes a driver's step; nil for the driver itself (its step is a sign of life), and for a
-- step without a token while nobody drives.
local function driven()
  local driver = redis.call('HGET', keys.meta, 'driver') or ''
  if driver ~= ARGV[2] then return redis.error_reply('DRIVEN ' .. driver) end
  if driver ~= '' then redis.call('HSET', keys.meta, 'driver_at', now_ms()) end
end
-- Adds to a counter of the whole ledger. If another program overwrote the counter, it counts nothing: the answer that comes
-- with the step must not be refused because of that, or it would come again for ever.
local function tally(...)
  local reply = redis.pcall(...)
  local failed = type(reply) == 'table' and reply.err
  if not failed or string.find(failed, 'WRONGTYPE', 1, true) or string.find(failed, 'not an integer', 1, true) then return end
  redis.call(...)
end
