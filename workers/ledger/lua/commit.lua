-- One chunk's answer, once: digest, part and counters together. Returns committed, duplicate,
-- divergent, stale, other (code) or gone.
-- An answer with dead records came by a ruling, so it never contradicts another one: the first stays.
-- ARGV: ttl, seq, epoch, digest, part, records, dead records, code version that computed it, (counter, by)... for an
-- answer that is committed
local seq = ARGV[2]
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 'gone' end
if epoch ~= ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'stale', 1)
  return 'stale'
end
local code = redis.call('HGET', KEYS[1], 'code')
if code and code ~= ARGV[8] then return 'other' end
local stored = redis.call('HGET', KEYS[3], seq)
local dead = tonumber(ARGV[7])
if stored and (stored == ARGV[4] or dead > 0 or note('dead', seq) > 0) then
  redis.call('HINCRBY', KEYS[1], 'duplicates', 1)
  count('duplicates', 1)
  return 'duplicate'
end
local open = redis.call('HGET', KEYS[1], 'state') == 'open'
if stored then
  redis.call('HSET', KEYS[10], seq .. ' ' .. ARGV[4], ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'divergent', 1)
  count('divergent', 1)
  local reason = 'divergent: two different answers for chunk ' .. seq
  redis.call('HSET', KEYS[1], 'reason', reason)
  if open then end_run('failed', reason) end
  return 'divergent'
end
if not open then return 'closed' end
count_records(ARGV[6])
redis.call('HSET', KEYS[3], seq, ARGV[4])
redis.call('HSET', KEYS[4], seq, ARGV[5])
redis.call('ZREM', KEYS[5], seq)
redis.call('ZREM', KEYS[11], seq)
redis.call('HDEL', KEYS[6], seq)
redis.call('HDEL', KEYS[8], seq)
redis.call('HDEL', KEYS[9], seq)
recount()
redis.call('HINCRBY', KEYS[1], 'computed', 1)
if dead > 0 then
  redis.call('HSET', KEYS[7], 'dead ' .. seq, dead)
  redis.call('HINCRBY', KEYS[1], 'dead', dead)
  count('dead', dead)
end
-- What was counted before a retry is not counted again.
local counted = tonumber(redis.call('HGET', KEYS[10], 'counted ' .. seq) or '0')
count('chunks', 1)
count('records', math.max(0, tonumber(ARGV[6]) - dead - counted))
for i = 9, #ARGV, 2 do redis.call('HINCRBY', TOTALS, ARGV[i], ARGV[i + 1]) end
redis.call('HSET', TOTALS, 'last_commit', now_ms())
return 'committed'
