-- Shared by the scripts of a run. ARGV[1] is the lifetime of its keys in ms, prolonged by every step that moves the run on,
-- ARGV[2] the token of the driver that takes the step ('' for whoever drives nothing).
local function lease_of(seq)
  local text = redis.call('HGET', keys.leases, seq)
  if not text then return nil end
  local deadline, length, pid, worker = string.match(text, '^(%d+) (%d+) (%d+) (.+)$')
  if not deadline then return nil end
  local left = tonumber(deadline) - now_ms()
  -- One that ends later than it could have been written to end was written before the clock was set back: it is over.
  return {live = left > 0 and left <= 2 * tonumber(length), pid = pid, worker = worker}
end
local function set_lease(seq, ms, pid, worker)
  redis.call('HSET', keys.leases, seq, (now_ms() + tonumber(ms)) .. ' ' .. ms .. ' ' .. pid .. ' ' .. worker)
end
local function release() redis.call('HDEL', keys.meta, 'driver', 'driver_at') end
-- How many chunks the run was sealed with, nil while its plan is open.
local function sealed()
  return tonumber(string.match(redis.call('HGET', keys.meta, 'seal') or '', '"chunks":(%d+)'))
end
-- What is committed is counted by its digests: where that key was lost, its records are counted from none again.
local function recount() redis.call('HSET', keys.meta, 'committed', redis.call('HLEN', keys.digests)) end
local function count_records(by)
  if redis.call('EXISTS', keys.digests) == 0 then redis.call('HSET', keys.meta, 'records', 0) end
  redis.call('HINCRBY', keys.meta, 'records', by)
end
local function note(name, seq)
  return tonumber(redis.call('HGET', keys.notes, name .. ' ' .. seq) or '0')
end
-- A lease that died uncommitted: with its process alone, or with the whole worker. Where the chunk was being
-- taken apart, the range under trial bears it too.
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
-- Keeps the lists of runs: those that workers look at, and by state those that they do not, of which there may be any
-- number. So neither a worker nor a snapshot asks for each run that there ever was.
local ENDED = {'paused', 'spent', 'failed', 'done', 'cancelled'}
local function list(ms)
  local run = string.match(keys.meta, '{(.*)}')
  local state, detached, reported, queue = unpack(redis.call('HMGET', keys.meta, 'state', 'detached', 'reported', 'queue'))
  local tended = state == 'open' or (state == 'done' and detached and not reported)
  -- By `tally`, since a list that somebody else wrote over must refuse no answer that comes with the step.
  if tended then tally('HSET', shared.tended, run, queue or '') else tally('HDEL', shared.tended, run) end
  for _, name in ipairs(ENDED) do
    if name == state then tally('ZADD', shared.ended .. name, string.format('%d', now_ms() + ms), run)
    else tally('ZREM', shared.ended .. name, run) end
  end
  if state then tally('HSET', shared.runs, run, queue or '') else tally('HDEL', shared.runs, run) end
end
-- A run that is computed, or driven, is on the lists: whatever of them was lost.
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
-- For closing: 'done' needs every chunk, and its driver keeps such a run until it has left the report.
local function lacks(state)
  local chunks = sealed()
  return state == 'done' and (not chunks or redis.call('HLEN', keys.digests) < chunks)
end
local function keeps(state) return state == 'done' end
-- Whether no producer attends the run: it was left to the workers, or its driver has been silent for so long.
local function left_alone(now, driver_ms)
  if redis.call('HEXISTS', keys.meta, 'detached') == 1 then return true end
  local at = tonumber(redis.call('HGET', keys.meta, 'driver_at') or '')
  return at ~= nil and now - at > driver_ms
end
-- A worker's last failure, and how many it had; workers beyond the most that are listed share one entry.
local function tell_failure(worker, host, kind, reason, most)
  redis.call('HINCRBY', keys.meta, 'failures', 1)
  count('failures', 1, kind)
  local field = 'worker ' .. worker
  if redis.call('HLEN', keys.failures) >= most and redis.call('HEXISTS', keys.failures, field) == 0 then field = 'worker other' end
  local known, told = pcall(cjson.decode, redis.call('HGET', keys.failures, field) or '')
  local before = known and type(told) == 'table' and tonumber(told.count) or 0
  redis.call('HSET', keys.failures, field, cjson.encode({
    worker = worker, host = host, kind = kind, reason = reason, count = before + 1, at = now_ms(),
    committed = tonumber(redis.call('HGET', keys.meta, 'committed') or '0'),
  }))
end
