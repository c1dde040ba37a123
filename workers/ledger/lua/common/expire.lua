-- ARGV[1] is the lifetime of the keys in ms. A body that changed nothing returns a second value: then only keys without an
-- expiry get one, since reading must not prolong their life.
local result, idle = body()
for i = 1, #KEYS do
  if idle then
    redis.call('PEXPIRE', KEYS[i], ARGV[1], 'NX')
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
  end
end
return result
