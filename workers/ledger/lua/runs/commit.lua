-- One chunk's answer, once: digest, part and counters together. Returns committed, duplicate,
-- divergent, stale, other (code) or gone.
-- An answer with dead records came by a ruling, so it never contradicts another one: the first stays.
-- ARGV: ttl, token, seq, epoch, digest, part, records, dead records, code version that computed it, (counter, by)... for an
-- answer that is committed
local seq, sent_epoch, digest, part, records, dead, sent_code = unpack(ARGV, 3, 9)
dead = tonumber(dead)
local epoch = redis.call('HGET', keys.meta, 'epoch')
if not epoch then return 'gone' end
if epoch ~= sent_epoch then
  redis.call('HINCRBY', keys.meta, 'stale', 1)
  return 'stale'
end
-- No lease is asked for: whoever computed the chunk, the first answer counts.
local code = redis.call('HGET', keys.meta, 'code')
if code and code ~= sent_code then return 'other' end
local stored = redis.call('HGET', keys.digests, seq)
if stored and (stored == digest or dead > 0 or note('dead', seq) > 0) then
  redis.call('HINCRBY', keys.meta, 'duplicates', 1)
  count('duplicates', 1)
  return 'duplicate'
end
local open = redis.call('HGET', keys.meta, 'state') == 'open'
if stored then
  -- Also of a run that is over: that its answers differ has to be known, whatever was reported.
  redis.call('HSET', keys.aside, seq .. ' ' .. digest, part)
  redis.call('HINCRBY', keys.meta, 'divergent', 1)
  count('divergent', 1)
  local reason = 'divergent: two different answers for chunk ' .. seq
  redis.call('HSET', keys.meta, 'reason', reason)
  if open then set_state('failed', reason) end
  return 'divergent'
end
if not open then return 'closed' end
-- Before the digest is there: whether that key was lost shows only as long as it is empty.
count_records(records)
redis.call('HSET', keys.digests, seq, digest)
redis.call('HSET', keys.parts, seq, part)
redis.call('ZREM', keys.flight, seq)
redis.call('ZREM', keys.sent, seq)
redis.call('HDEL', keys.leases, seq)
redis.call('HDEL', keys.refused, seq)
redis.call('HDEL', keys.blobs, seq)
recount()
redis.call('HINCRBY', keys.meta, 'computed', 1)
if dead > 0 then
  redis.call('HSET', keys.notes, 'dead ' .. seq, dead)
  redis.call('HINCRBY', keys.meta, 'dead', dead)
  count('dead', dead)
end
-- What was counted before a retry is not counted again.
local counted = tonumber(redis.call('HGET', keys.aside, 'counted ' .. seq) or '0')
count('chunks', 1)
count('records', math.max(0, tonumber(records) - dead - counted))
for i = 10, #ARGV, 2 do tally('HINCRBY', shared.totals, ARGV[i], ARGV[i + 1]) end
tally('HSET', shared.totals, 'last_commit', now_ms())
return 'committed'
