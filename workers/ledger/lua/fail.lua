-- A failure of one worker at a chunk, counted by chunk and by worker; the chunk is offered again, later each time.
-- Bytes that cannot be read here are no failure while the producer is there to send them. Returns whether it counted.
-- ARGV: ttl, seq, epoch, worker, host, kind, reason, grace ms, driver ms, most entries
local seq, worker, kind = ARGV[2], ARGV[4], ARGV[6]
local now = now_ms()
if redis.call('HGET', KEYS[1], 'state') ~= 'open' or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[3] then return 0 end
if redis.call('HEXISTS', KEYS[3], seq) == 1 then return 0 end
local unread = kind == 'input'
if unread and not left_alone(now, tonumber(ARGV[9])) then return 0 end
local lease = lease_of(seq)
if lease and lease.worker == worker then redis.call('HDEL', KEYS[6], seq) end
-- Where the list is full, what is said of chunks that have their answer by now makes room.
local function full() return redis.call('HLEN', KEYS[13]) >= tonumber(ARGV[10]) end
if full() then
  local entries = redis.call('HGETALL', KEYS[13])
  for i = 1, #entries, 2 do
    local done = string.match(entries[i], '^chunk (%d+) ')
    if done and redis.call('HEXISTS', KEYS[3], done) == 1 then redis.call('HDEL', KEYS[13], entries[i]) end
  end
end
local function add(field)
  if not full() or redis.call('HEXISTS', KEYS[13], field) == 1 then
    redis.call('HINCRBY', KEYS[13], field, 1)
  end
end
local tries = 0
if unread then
  add('unread ' .. worker)
elseif kind ~= 'load' then
  add('chunk ' .. seq .. ' ' .. worker)
  tries = redis.call('HINCRBY', KEYS[7], 'failed ' .. seq, 1)
end
local committed = tonumber(redis.call('HGET', KEYS[1], 'committed') or '0')
local at = string.match(redis.call('HGET', KEYS[13], 'barren') or '', '^(%d+) ')
if tonumber(at) ~= committed then redis.call('HSET', KEYS[13], 'barren', committed .. ' ' .. now) end
tell_failure(worker, ARGV[5], kind, ARGV[7], tonumber(ARGV[10]))
if not unread then
  redis.call('HDEL', KEYS[7], 'tries ' .. seq)
  local wait = tries > 4 and 1000 * math.min(2 ^ (tries - 5), 32) or 0
  redis.call('ZADD', KEYS[5], now + wait - tonumber(ARGV[8]), seq)
end
return 1, true
