-- Deletes outputs up to a running number, which are safe in the run folder, if the last of them is the one collected there.
-- Returns how many were deleted. ARGV: ttl, token, number behind the last, SHA-1 of the last
local other = refused()
if other then return other end
local count = tonumber(ARGV[3]) - number('trimmed')
local last = count > 0 and redis.call('LINDEX', keys.outbox, count - 1)
if not last or redis.sha1hex(last) ~= ARGV[4] then return 0 end
redis.call('LTRIM', keys.outbox, count, -1)
redis.call('HINCRBY', keys.meta, 'trimmed', count)
return count
