-- ARGV[1] is the lifetime of the keys in ms. A body that changed nothing says so by a second value: looking at something
-- does not keep it, but what is new expires.
local result, idle = body()
for i = 1, #KEYS do
  if idle then
    redis.call('PEXPIRE', KEYS[i], ARGV[1], 'NX')
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
  end
end
return result
