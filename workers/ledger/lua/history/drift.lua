-- Stores a chain as a run left it, in place of the chain it was counted on. Returns 1; 0 where another run was counted
-- since that was read, -1 where there is no such history (any more): nothing is kept that nobody would find.
-- ARGV: member of the index, chain, SHA-1 of what was read (empty: none was there), record, what is shown, most chains
local place, chain, read, record, shown = unpack(ARGV, 1, 5)
if not redis.call('ZSCORE', shared.histories, place) then return -1 end
local stored = redis.call('HGET', keys.drift, chain)
if (stored and redis.sha1hex(stored) or '') ~= read then return 0 end
-- After all others, also those from before the server's clock was set back: what was counted just now is dropped last.
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
-- The index tells who looks whether anything changed.
redis.call('ZADD', shared.histories, newest(), place)
return 1
