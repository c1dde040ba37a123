-- A finished run's entry in its history, newest first; the same answer again changes nothing, another one of the same
-- run takes the place of the one before. Returns 1 where something changed.
-- KEYS: 1 ids, 2 texts, 3 recent values, 4 index of histories.
-- ARGV: member of the index, run, digest, text, recent values, most runs, most histories, prefix of histories
local run, digest = ARGV[2], ARGV[3]
local stored = redis.call('HGET', KEYS[2], run)
if stored and string.match(stored, '^%S+') == digest then return 0 end
local time = redis.call('TIME')
local ended = time[1] .. string.format('%06d', tonumber(time[2]))
redis.call('HSET', KEYS[2], run, digest .. ' ' .. ended .. ' ' .. ARGV[4])
redis.call('HSET', KEYS[3], run, ARGV[5])
redis.call('ZADD', KEYS[4], ended, ARGV[1])
if not stored then redis.call('LPUSH', KEYS[1], run) end
while redis.call('LLEN', KEYS[1]) > tonumber(ARGV[6]) do
  local oldest = redis.call('RPOP', KEYS[1])
  redis.call('HDEL', KEYS[2], oldest)
  redis.call('HDEL', KEYS[3], oldest)
end
local over = redis.call('ZCARD', KEYS[4]) - tonumber(ARGV[7])
if over > 0 then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[4], 0, over - 1)) do
    redis.call('ZREM', KEYS[4], member)
    redis.call('DEL', ARGV[8] .. member, ARGV[8] .. member .. ':texts', ARGV[8] .. member .. ':recent')
  end
end
return 1
