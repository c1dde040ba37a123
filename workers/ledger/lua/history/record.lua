-- Records a finished run in its history, newest first. The same answer changes nothing; another answer of the same run
-- replaces the entry. Returns 1 if something changed.
-- ARGV: member of the index, run, digest, text, recent values, most runs, most histories
local member, run, digest, text, recent = unpack(ARGV, 1, 5)
local most_runs, most_histories = tonumber(ARGV[6]), tonumber(ARGV[7])
local stored = redis.call('HGET', keys.texts, run)
if stored and string.match(stored, '^%S+') == digest then return 0 end
local ended = string.format('%d', now_us())
redis.call('HSET', keys.texts, run, digest .. ' ' .. ended .. ' ' .. text)
redis.call('HSET', keys.recent, run, recent)
redis.call('ZADD', shared.histories, newest(), member)
if not stored then redis.call('LPUSH', keys.ids, run) end
while redis.call('LLEN', keys.ids) > most_runs do
  local oldest = redis.call('RPOP', keys.ids)
  redis.call('HDEL', keys.texts, oldest)
  redis.call('HDEL', keys.recent, oldest)
end
local over = redis.call('ZCARD', shared.histories) - most_histories
if over > 0 then
  for _, oldest in ipairs(redis.call('ZRANGE', shared.histories, 0, over - 1)) do
    redis.call('ZREM', shared.histories, oldest)
    local key = shared.history .. oldest
    redis.call('DEL', key, key .. ':texts', key .. ':recent', key .. ':drifting', shared.drift .. oldest)
  end
end
return 1
