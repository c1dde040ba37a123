-- Reads recorded outputs that were not trimmed yet. Returns {number of the first, output...}. ARGV: ttl, token, most
local other = refused()
if other then return other, true end
local outputs = redis.call('LRANGE', keys.outbox, 0, ARGV[3] - 1)
table.insert(outputs, 1, number('trimmed'))
return outputs, true
