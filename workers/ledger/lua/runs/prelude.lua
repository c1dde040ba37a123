-- Shared by the scripts of a run. ARGV[1] is the lifetime of its keys in ms, prolonged by every step that moves the run on,
-- ARGV[2] the token of the driver that takes the step ('' for other processes).
local function lease_of(seq)
  local text = redis.call('HGET', keys.leases, seq)
  if not text then return nil end
  local deadline, length, pid, worker = string.match(text, '^(%d+) (%d+) (%d+) (.+)$')
  if not deadline then return nil end
  local left = tonumber(deadline) - now_ms()
  -- A lease that ends later than any could end now was written before the clock was set back: it is over.
  return {live = left > 0 and left <= 2 * tonumber(length), pid = pid, worker = worker}
end
local function set_lease(seq, ms, pid, worker)
  redis.call('HSET', keys.leases, seq, (now_ms() + tonumber(ms)) .. ' ' .. ms .. ' ' .. pid .. ' ' .. worker)
end
local function release() redis.call('HDEL', keys.meta, 'driver', 'driver_at') end
-- The number of chunks in the run's seal; nil while its plan is open.
local function sealed()
  return tonumber(string.match(redis.call('HGET', keys.meta, 'seal') or '', '"chunks":(%d+)'))
end
-- Committed chunks are counted by their digests. If that key was lost, records count from 0 again.
local function recount() redis.call('HSET', keys.meta, 'committed', redis.call('HLEN', keys.digests)) end
local function count_records(by)
  if redis.call('EXISTS', keys.digests) == 0 then redis.call('HSET', keys.meta, 'records', 0) end
  redis.call('HINCRBY', keys.meta, 'records', by)
end
local function note(name, seq)
  return tonumber(redis.call('HGET', keys.notes, name .. ' ' .. seq) or '0')
end
-- Counts a lease that died: with its process alone, or with the whole worker. If the chunk was being taken apart, the range
-- under trial counts, too.
local function count_death(seq, lease)
  local alone = redis.call('EXISTS', shared.worker .. lease.worker) == 1
  redis.call('HINCRBY', keys.notes, (alone and 'attempts ' or 'losses ') .. seq, 1)
  local range = redis.call('HGET', keys.notes, 'trying ' .. seq)
  if range then
    redis.call('HINCRBY', keys.notes, 'fell ' .. seq .. ' ' .. range, 1)
    redis.call('HDEL', keys.notes, 'trying ' .. seq)
  end
end
-- A counter over all runs, by evaluator and suite: "<name> <evaluator> <suite>[ <tail>]".
local function count(name, by, tail)
  local label = redis.call('HGET', keys.meta, 'label') or ' unknown unknown'
  tally('HINCRBY', shared.totals, name .. label .. (tail and ' ' .. tail or ''), by)
end
-- Updates the lists of runs: one for the runs that workers tend, and one for each other state, of any length. So neither
-- workers nor snapshots read every run that ever was.
local ENDED = {'paused', 'spent', 'failed', 'done', 'cancelled'}
local function list(ms)
  local run = string.match(keys.meta, '{(.*)}')
  local state, detached, reported, queue = unpack(redis.call('HMGET', keys.meta, 'state', 'detached', 'reported', 'queue'))
  local tended = state == 'open' or (state == 'done' and detached and not reported)
  -- By `tally`: a list that another program overwrote must not refuse the answer that comes with the step.
  if tended then tally('HSET', shared.tended, run, queue or '') else tally('HDEL', shared.tended, run) end
  for _, name in ipairs(ENDED) do
    if name == state then tally('ZADD', shared.ended .. name, string.format('%d', now_ms() + ms), run)
    else tally('ZREM', shared.ended .. name, run) end
  end
  if state then tally('HSET', shared.runs, run, queue or '') else tally('HDEL', shared.runs, run) end
end
-- Puts a run that is computed or driven back on lists that were lost.
local function listed(run)
  for _, name in ipairs({shared.tended, shared.runs}) do
    if redis.pcall('HEXISTS', name, run) ~= 1 then return list(tonumber(ARGV[1])) end
  end
end
local function set_state(state, reason)
  redis.call('HSET', keys.meta, 'state', state, 'reason', reason)
  count('ended', 1, state)
  list(tonumber(ARGV[1]))
end
-- For closing: 'done' needs every chunk, and its driver keeps such a run until it has stored the report.
local function lacks(state)
  local chunks = sealed()
  return state == 'done' and (not chunks or redis.call('HLEN', keys.digests) < chunks)
end
local function keeps(state) return state == 'done' end
-- Whether no producer attends the run: it was detached, or its driver has been silent for so long.
local function left_alone(now, driver_ms)
  if redis.call('HEXISTS', keys.meta, 'detached') == 1 then return true end
  local at = tonumber(redis.call('HGET', keys.meta, 'driver_at') or '')
  return at ~= nil and now - at > driver_ms
end
-- Stores a worker's last failure and the count of its failures; workers beyond the limit share one entry.
local function store_failure(worker, host, kind, reason, most)
  redis.call('HINCRBY', keys.meta, 'failures', 1)
  count('failures', 1, kind)
  local field = 'worker ' .. worker
  if redis.call('HLEN', keys.failures) >= most and redis.call('HEXISTS', keys.failures, field) == 0 then field = 'worker other' end
  local valid, entry = pcall(cjson.decode, redis.call('HGET', keys.failures, field) or '')
  local before = valid and type(entry) == 'table' and tonumber(entry.count) or 0
  redis.call('HSET', keys.failures, field, cjson.encode({
    worker = worker, host = host, kind = kind, reason = reason, count = before + 1, at = now_ms(),
    committed = tonumber(redis.call('HGET', keys.meta, 'committed') or '0'),
  }))
end
