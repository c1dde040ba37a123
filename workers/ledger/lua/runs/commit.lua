-- Stores one chunk's answer once: digest, part and counters. Returns committed, duplicate, divergent, stale, closed, other
-- (code version) or gone. An answer with dead records never contradicts another one: the first stays.
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
-- It needs no lease: the first answer counts, whichever process computed it.
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
  -- Also after the end of a run: its user must learn that answers differ, whatever was reported.
  redis.call('HSET', keys.aside, seq .. ' ' .. digest, part)
  redis.call('HINCRBY', keys.meta, 'divergent', 1)
  count('divergent', 1)
  local reason = 'divergent: two different answers for chunk ' .. seq
  redis.call('HSET', keys.meta, 'reason', reason)
  if open then set_state('failed', reason) end
  return 'divergent'
end
if not open then return 'closed' end
-- Before the digest is stored: only an empty key shows that the digests were lost.
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
-- Do not count again what was counted before a retry.
local counted = tonumber(redis.call('HGET', keys.aside, 'counted ' .. seq) or '0')
count('chunks', 1)
count('records', math.max(0, tonumber(records) - dead - counted))
for i = 10, #ARGV, 2 do tally('HINCRBY', shared.totals, ARGV[i], ARGV[i + 1]) end
tally('HSET', shared.totals, 'last_commit', now_ms())
return 'committed'
