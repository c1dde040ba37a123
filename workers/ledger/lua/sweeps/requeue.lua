-- Takes calls of cases from the processes that have them, so that they are made again at once; those processes drop them at
-- their next claim. Returns how many these are, -1 for an unknown sweep. ARGV: ttl, token, case...
if redis.call('HEXISTS', keys.meta, 'sweep') == 0 then return -1 end
local cases, total, count = number('cases'), number('total'), 0
for i = 3, #ARGV do
  for call = tonumber(ARGV[i]), total - 1, cases do
    local holder = redis.call('HGET', keys.held, call)
    if holder and redis.call('HEXISTS', keys.begun, call) == 1 and redis.call('SISMEMBER', keys.recorded, call) == 0 then
      local name, begun = string.format('%d', call), tonumber(redis.call('HGET', keys.begun, call))
      local kept = tonumber(redis.call('HGET', keys.kept, call)) or 0
      use(name, begun - kept, now_ms())
      take_back(name, holder, false)
      -- Lost for good: not under the process's name, whose next output of this call would uncount them.
      for attempt = 1, begun - kept do redis.call('SADD', keys.lost, lost_name('ctl.' .. now_ms(), name, attempt)) end
      redis.call('HSET', keys.used, 'drop ' .. call, holder)
      count = count + 1
    end
  end
end
return count
