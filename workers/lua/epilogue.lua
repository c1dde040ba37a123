local result = body()
for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
return result
