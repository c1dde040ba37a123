-- Shared by every script. KEYS are always the run's: 1 meta, 2 chunks, 3 digests, 4 parts, 5 flight,
-- 6 leases, 7 notes, 8 refused, 9 blobs, 10 aside, 11 sent, 12 final, 13 failures. ARGV[1] is their lifetime in ms,
-- prolonged by every call that moves the run on.
-- TOTALS, the key of all runs' counters, is set in front of this.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function lease_of(seq)
  local text = redis.call('HGET', KEYS[6], seq)
  if not text then return nil end
  local deadline, length, pid, worker = string.match(text, '^(%d+) (%d+) (%d+) (.+)$')
  if not deadline then return nil end
  local left = tonumber(deadline) - now_ms()
  -- One that ends later than it could have been written to end was written before the clock was set back: it is over.
  return {live = left > 0 and left <= 2 * tonumber(length), pid = pid, worker = worker}
end
local function set_lease(seq, ms, pid, worker)
  redis.call('HSET', KEYS[6], seq, (now_ms() + tonumber(ms)) .. ' ' .. ms .. ' ' .. pid .. ' ' .. worker)
end
-- Whether somebody else drives the run than `token` ('': nobody): the answer to give then, else nil. A driver's step is
-- a sign of its life.
local function driven_by_other(token)
  local driver = redis.call('HGET', KEYS[1], 'driver') or ''
  if driver ~= token then return {'driven', driver} end
  if token ~= '' then redis.call('HSET', KEYS[1], 'driver_at', now_ms()) end
end
local function hand_over() redis.call('HDEL', KEYS[1], 'driver', 'driver_at') end
-- How many chunks the run was sealed with, nil while its plan is open.
local function sealed()
  return tonumber(string.match(redis.call('HGET', KEYS[1], 'seal') or '', '"chunks":(%d+)'))
end
-- What is committed is counted by its digests: where that key was lost, its records are counted from none again.
local function recount() redis.call('HSET', KEYS[1], 'committed', redis.call('HLEN', KEYS[3])) end
local function count_records(by)
  if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('HSET', KEYS[1], 'records', 0) end
  redis.call('HINCRBY', KEYS[1], 'records', by)
end
local function note(name, seq)
  return tonumber(redis.call('HGET', KEYS[7], name .. ' ' .. seq) or '0')
end
-- A lease that died uncommitted: with its process alone, or with the whole worker. Where the chunk was being
-- taken apart, the range under trial bears it too.
local function count_death(seq, lease, worker_prefix)
  local alone = redis.call('EXISTS', worker_prefix .. lease.worker) == 1
  redis.call('HINCRBY', KEYS[7], (alone and 'attempts ' or 'losses ') .. seq, 1)
  local range = redis.call('HGET', KEYS[7], 'trying ' .. seq)
  if range then
    redis.call('HINCRBY', KEYS[7], 'fell ' .. seq .. ' ' .. range, 1)
    redis.call('HDEL', KEYS[7], 'trying ' .. seq)
  end
end
-- A counter over all runs, by evaluator and suite: "<name> <evaluator> <suite>[ <tail>]".
local function count(name, by, tail)
  local label = redis.call('HGET', KEYS[1], 'label') or ' unknown unknown'
  redis.call('HINCRBY', TOTALS, name .. label .. (tail and ' ' .. tail or ''), by)
end
local function end_run(state, reason)
  redis.call('HSET', KEYS[1], 'state', state, 'reason', reason)
  count('ended', 1, state)
end
-- Whether no producer attends the run: it was left to the workers, or its driver has been silent for so long.
local function left_alone(now, driver_ms)
  if redis.call('HEXISTS', KEYS[1], 'detached') == 1 then return true end
  local at = tonumber(redis.call('HGET', KEYS[1], 'driver_at') or '')
  return at ~= nil and now - at > driver_ms
end
-- A worker's last failure, and how many it had; workers beyond the most that are listed share one entry.
local function tell_failure(worker, host, kind, reason, most)
  redis.call('HINCRBY', KEYS[1], 'failures', 1)
  count('failures', 1, kind)
  local field = 'worker ' .. worker
  if redis.call('HLEN', KEYS[13]) >= most and redis.call('HEXISTS', KEYS[13], field) == 0 then field = 'worker other' end
  local known, told = pcall(cjson.decode, redis.call('HGET', KEYS[13], field) or '')
  local before = known and type(told) == 'table' and tonumber(told.count) or 0
  redis.call('HSET', KEYS[13], field, cjson.encode({
    worker = worker, host = host, kind = kind, reason = reason, count = before + 1, at = now_ms(),
    committed = tonumber(redis.call('HGET', KEYS[1], 'committed') or '0'),
  }))
end
