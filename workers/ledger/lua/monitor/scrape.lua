-- A snapshot of the whole ledger; it changes nothing. Returns {now in ms, states, chunks, first
-- publication of the oldest, totals, calls, workers, queues, version of the histories, histories (none when the version
-- is the known one), open sweeps with calls to make, calling processes (both as stored), {open run that no living worker
-- can compute, since when in ms}, processes that follow traces, as stored}. Values by name are flat: name, value, name, value.
-- ARGV: queue classes separated by blanks, most recent runs of a history, known version of the histories, states other than
-- open separated by blanks
local classes, recent, known_version, ended = ARGV[1], tonumber(ARGV[2]) - 1, ARGV[3], ARGV[4]
local now = now_ms()
local function flat(map)
  local list = {}
  for name, value in pairs(map) do
    table.insert(list, name)
    table.insert(list, value)
  end
  return list
end
local function add(map, name, by) map[name] = (map[name] or 0) + by end
-- The content of a key, or `nothing` if it has a wrong type: one bad key must not hide the rest.
local function read(nothing, ...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return nothing end
  return redis.call(...)
end
local function number(text) return tonumber(text or '') or 0 end

local states, chunks, holders, queues = {}, {planned = 0, published = 0, leased = 0, committed = 0}, {}, {}
local oldest, unserved = false, {}
for state in string.gmatch(ended, '%S+') do
  local number_of = read(0, 'ZCOUNT', shared.ended .. state, string.format('(%d', now), '+inf')
  if number_of > 0 then add(states, state, number_of) end
end
local runs = read({}, 'HGETALL', shared.tended)
for i = 1, #runs, 2 do
  local function run_key(part) return shared.run .. '{' .. runs[i] .. '}:' .. part end
  local meta = read({'damaged'}, 'HMGET', run_key('meta'), 'state', 'chunks', 'committed', 'unserved')
  -- Runs of other states are counted above, also those that workers tend.
  if meta[1] == 'open' or meta[1] == 'damaged' then add(states, meta[1], 1) end
  if meta[1] == 'open' then
    local flight, live = read(0, 'ZCARD', run_key('flight')), 0
    for _, lease in ipairs(read({}, 'HVALS', run_key('leases'))) do
      local deadline, length, worker = string.match(lease, '^(%d+) (%d+) %d+ (.+)$')
      local left = number(deadline) - now
      if left > 0 and left <= 2 * tonumber(length) then
        live = live + 1
        add(holders, worker, 1)
      end
    end
    local committed = number(meta[3])
    local since, at = string.match(meta[4] or '', '^(%d+) (%d+)$')
    if since and tonumber(at) == committed then table.insert(unserved, {runs[i], tonumber(since)}) end
    add(chunks, 'committed', committed)
    add(chunks, 'leased', live)
    add(chunks, 'published', math.max(0, flight - live))
    add(chunks, 'planned', math.max(0, number(meta[2]) - committed - flight))
    local first = read({}, 'ZRANGE', run_key('sent'), 0, 0, 'WITHSCORES')
    if first[2] and (not oldest or tonumber(first[2]) < oldest) then oldest = tonumber(first[2]) end
    queues[runs[i + 1]] = 0
  end
end

local workers = {}
for _, name in ipairs(read({}, 'SMEMBERS', shared.workers)) do
  local facts = read({}, 'HGETALL', shared.worker .. name)
  if #facts > 0 then
    table.insert(workers, {name, facts, holders[name] or 0})
    for j = 1, #facts, 2 do
      if facts[j] == 'code' then
        for class in string.gmatch(classes, '%S+') do queues['evalq.' .. class .. '.' .. facts[j + 1]] = 0 end
      end
    end
  end
end
for queue in pairs(queues) do queues[queue] = read(0, 'LLEN', queue) end

local sweeps, callers = {}, {}
local known = read({}, 'HGETALL', shared.sweeps)
for i = 1, #known, 2 do
  local function sweep_key(part) return shared.sweep .. '{' .. known[i] .. '}:' .. part end
  local meta = read({}, 'HMGET', sweep_key('meta'), 'state', 'cursor', 'total')
  if meta[1] == 'open' then
    local left = number(meta[2]) < number(meta[3])
    if left or read(0, 'HLEN', sweep_key('held')) > 0 or read(0, 'LLEN', sweep_key('again')) > 0 then
      table.insert(sweeps, known[i + 1])
    end
  end
end
for _, name in ipairs(read({}, 'SMEMBERS', shared.callers)) do
  local facts = read(false, 'GET', shared.caller .. name)
  if facts then table.insert(callers, facts) end
end

local followers = {}
for _, name in ipairs(read({}, 'SMEMBERS', shared.followers)) do
  local facts = read(false, 'HGET', shared.follower .. name, 'facts')
  if facts then table.insert(followers, facts) end
end

local index, histories = read({}, 'ZRANGE', shared.histories, 0, -1, 'REV'), {}
local last = read({}, 'ZRANGE', shared.histories, -1, -1, 'WITHSCORES')
local version = #index .. ' ' .. (last[2] or '')
for _, member in ipairs(version == known_version and {} or index) do
  local key = shared.history .. member
  local ids = read({}, 'LRANGE', key, 0, recent)
  if #ids > 0 then
    local newest = read(false, 'HGET', key .. ':texts', ids[1])
    local values, drifting = read({}, 'HMGET', key .. ':recent', unpack(ids)), read({}, 'HVALS', key .. ':drifting')
    table.insert(histories, {member, newest, values, ids, drifting})
  end
end
return {
  now, flat(states), flat(chunks), oldest, read({}, 'HGETALL', shared.totals), read({}, 'HGETALL', shared.calls),
  workers, flat(queues), version, histories, sweeps, callers, unserved, followers,
}
