-- What a run made of its chain, in the place of what it was made of. Returns 1; 0 where another run was counted since
-- that was read, -1 where there is no such history (any more): nothing is kept that nobody would find.
-- ARGV: member of the index, chain, SHA-1 of what was read (empty: none was there), record, what is shown, most chains
local place, chain, read, record, shown = unpack(ARGV, 1, 5)
if not redis.call('ZSCORE', shared.histories, place) then return -1 end
local stored = redis.call('HGET', keys.drift, chain)
if (stored and redis.sha1hex(stored) or '') ~= read then return 0 end
local now = string.format('%d', now_us())
redis.call('HSET', keys.drift, chain, record)
redis.call('HSET', keys.drifting, chain, now .. ' ' .. shown)
if redis.call('HLEN', keys.drifting) > tonumber(ARGV[6]) then
  local all, oldest, when = redis.call('HGETALL', keys.drifting), nil, nil
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^(%d+) ') or '0')
    if not when or at < when then oldest, when = all[i], at end
  end
  redis.call('HDEL', keys.drift, oldest)
  redis.call('HDEL', keys.drifting, oldest)
end
-- The index tells who looks whether anything changed.
redis.call('ZADD', shared.histories, newest(), place)
return 1
