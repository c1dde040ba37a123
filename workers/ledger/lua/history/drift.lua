-- Stores a chain after a run was counted, in place of the chain before. Returns 1; 0 if another run was counted since the
-- chain was read, -1 if the index has no such history (any more).
-- ARGV: member of the index, chain, SHA-1 of the chain that was read (empty: none), record, state to show, most chains
local member, chain, read, record, shown = unpack(ARGV, 1, 5)
if not redis.call('ZSCORE', shared.histories, member) then return -1 end
local stored = redis.call('HGET', keys.drift, chain)
if (stored and redis.sha1hex(stored) or '') ~= read then return 0 end
-- Its time is after all others, even if the server's clock was set back: the chain counted last is dropped last.
local all, now = redis.call('HGETALL', keys.drifting), now_us()
local function counted(i) return tonumber(string.match(all[i + 1], '^(%d+) ') or '0') end
for i = 1, #all, 2 do now = math.max(now, counted(i) + 1) end
redis.call('HSET', keys.drift, chain, record)
redis.call('HSET', keys.drifting, chain, string.format('%d', now) .. ' ' .. shown)
if redis.call('HLEN', keys.drifting) > tonumber(ARGV[6]) then
  local oldest, when = nil, nil
  for i = 1, #all, 2 do
    if all[i] ~= chain and (not when or counted(i) < when) then oldest, when = all[i], counted(i) end
  end
  redis.call('HDEL', keys.drift, oldest)
  redis.call('HDEL', keys.drifting, oldest)
end
-- Readers see by the index whether anything changed.
redis.call('ZADD', shared.histories, newest(), member)
return 1
