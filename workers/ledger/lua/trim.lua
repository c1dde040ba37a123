-- Parts that are safe in the driver's folder; their digests stay. ARGV: ttl, token, seq...
if redis.call('HEXISTS', KEYS[1], 'header') == 0 then return -1 end
local other = driven_by_other(ARGV[2])
if other then return other, true end
local gone = 0
for i = 3, #ARGV do gone = gone + redis.call('HDEL', KEYS[4], ARGV[i]) end
return gone, gone == 0
