-- Deletes parts that are safe in the driver's folder; their digests stay. ARGV: ttl, token, seq...
if redis.call('HEXISTS', keys.meta, 'header') == 0 then return -1 end
local other = driven()
if other then return other, true end
local gone = 0
for i = 3, #ARGV do gone = gone + redis.call('HDEL', keys.parts, ARGV[i]) end
return gone, gone == 0
