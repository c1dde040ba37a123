-- One exchange of a holder (a process) with the pool of its target: the results of its calls, how many it has in flight,
-- and how many more it wants. Returns {granted at (us), expected tokens per call, ms until the next exchange, 1 if only the
-- limit of concurrent calls holds it back, ms from now to each granted call's start...}. Each field is absolute or
-- idempotent, so a lost reply costs only a few slots.
-- ARGV: lifetime ms, ask (JSON of evalq.workers.ratelimit.Ask: the holder's report, its limits, the policy)
local ask = cjson.decode(ARGV[2])
local policy, now = ask.policy, now_us()
local state = {}
local flat = redis.call('HGETALL', keys.state)
for i = 1, #flat, 2 do state[flat[i]] = tonumber(flat[i + 1]) end
local function of(name, default) return state[name] or default end
-- What a user set in mid-run (evalq ctl) goes before what processes have in their targets files.
ask.requests_per_minute = of('set_rate', ask.requests_per_minute)
ask.max_concurrency = of('set_in_flight', ask.max_concurrency)

-- The server's clock may step back. Shift stored times by the step since the exchange that stored them; and bound each by
-- the furthest that this script ever puts it ahead.
local longest = policy.longest_hold_seconds * 1000000
local ceiling = ask.requests_per_minute > 0 and ask.requests_per_minute / 60 or math.huge
local least = math.min(policy.least_per_second, ceiling) -- a limit may be below the least rate
local next_ahead = math.max(longest, policy.horizon_seconds * 1000000 + 1000000 / least)
local stepped = math.max(0, of('at', now) - now)
for _, name in ipairs({'at', 'limited_at', 'stepped_at', 'doubled_at', 'held_at', 'passing_at', 'next_call', 'next_token'}) do
  local ahead = name == 'next_call' and next_ahead or name == 'next_token' and longest or policy.horizon_seconds * 1000000
  local at = state[name]
  if at then
    at = at - stepped
    state[name] = at > now + ahead and now or at
  end
end
ask.served_at = math.min(ask.served_at, now)
for _, refusal in ipairs(ask.refusals) do refusal[1] = math.min(refusal[1], now) end
local start = ceiling < math.huge and ceiling or policy.start_per_second
local rate, good, grown = of('rate', start), of('good', 0), of('grown', 0)
-- Another limit than at the last exchange holds at once: a call that was due by the old rate need not wait for it.
local limit = ceiling < math.huge and ceiling or -1
if of('limit', limit) ~= limit then
  if limit > 0 and good == 0 then rate = limit end
  state.next_call = nil
end

-- The rate `grown` seconds after a refusal, as a share of the last good rate. It rises quickly to `return_to`; then ever
-- flatter to 1, within `probe_calls` calls for each refusal of the last probe, so that the refused share is bounded for any
-- limit; from there ever faster, so that it finds a raised limit, too.
local function share()
  if grown < policy.return_seconds then
    return policy.factor + (policy.return_to - policy.factor) * grown / policy.return_seconds
  end
  local probing = grown - policy.return_seconds
  local probe = math.max(policy.probe_least_seconds, math.min(of('cost', 1) * policy.probe_calls / good, policy.probe_most_seconds))
  if probing < probe then return 1 - (1 - policy.return_to) * (1 - probing / probe) ^ 2 end
  return 1 + ((probing - probe) / policy.leap_seconds) ^ 2
end

-- Grow only while calls wait for the rate: an unused rate shows nothing.
if now - of('limited_at', 0) < 1000000 then
  local passed = math.max(0, math.min(1, (now - of('at', now)) / 1000000))
  grown = grown + passed
  if good > 0 then rate = good * share() end
  -- At first it doubles once calls at the rate before were answered, so at most once per round trip.
  if good == 0 and rate < ceiling and #ask.refusals == 0 and ask.served_at > of('doubled_at', 0) then
    rate = rate * 2
    state.doubled_at = now
  end
end
rate = math.max(least, math.min(rate, ceiling))

-- Tokens: the mean of a call, and the difference to the tokens charged beforehand.
local expected = of('expected', ask.tokens_per_call)
if ask.told > 0 then
  -- Bounded, since one reply's claim must not set the charge of each further call.
  local mean = math.min(ask.tokens / ask.told, 8 * math.max(1, expected))
  expected = state.expected and expected + (mean - expected) * math.min(1, ask.told / 20) or mean
end
local token_seconds = ask.tokens_per_minute > 0 and 60 / ask.tokens_per_minute or 0
local next_call = of('next_call', now)
local next_token = of('next_token', now) + ask.uncharged * token_seconds * 1000000

-- Refusals. A call granted before the last step back shows nothing new: one step per round trip.
local stepped_at, held_at, streak, asked_wait = of('stepped_at', 0), of('held_at', 0), of('streak', 0), of('asked_wait', -1)
-- What passes: calls per second that were started lately and not refused (so far); older calls weigh less.
local passing, passing_at = of('passing', rate), of('passing_at', now)
local fade = policy.passing_seconds * 1000000
local cost = of('cost', 1) -- refusals since the last probe ended
local function step_back(granted_at)
  if grown >= policy.return_seconds then cost = 0 end
  if good == 0 and granted_at <= of('doubled_at', 0) then rate = rate / 2 end -- that rate, not its double, was refused
  -- The passing rate is what the server takes, if the limit is far below or fewer calls came than the rate allowed. Do not
  -- step down by more than `factor` at once: while all calls are refused, nothing passes.
  local seen = passing * math.exp(math.min(0, passing_at - now) / fade)
  good = math.min(rate, math.max(policy.margin * seen, policy.factor * rate))
  rate, grown, stepped_at = math.max(least, good * policy.factor), 0, now
end
for _, refusal in ipairs(ask.refusals) do
  local weight = math.exp(math.min(0, refusal[1] - passing_at) / fade)
  if refusal[2] ~= -2 then passing = math.max(0, passing - weight / policy.passing_seconds) end
end
for _, refusal in ipairs(ask.refusals) do
  local granted_at, wait = refusal[1], refusal[2]
  -- While the rate returns, a spent quota is no news.
  if granted_at > stepped_at and (wait ~= -2 or good == 0 or grown >= policy.return_seconds) then step_back(granted_at) end
  if wait ~= -2 then cost = cost + 1 end
  if granted_at > held_at and wait ~= -2 then
    streak = streak + 1
    if wait >= 0 and (asked_wait < 0 or wait < asked_wait) then asked_wait = wait end
  end
end
if ask.served > 0 then streak, asked_wait = 0, -1 end
-- A whole window was refused (the calls of a second, at least `window`): now the pool waits, too.
if streak >= math.max(policy.window, rate) then
  local wait = math.min(asked_wait >= 0 and asked_wait or 1, policy.longest_hold_seconds)
  next_call = math.max(next_call, now + wait * 1000000)
  streak, asked_wait, held_at = 0, -1, now
end

-- The other holders: each one's number of calls counts until its lease ends.
local others, lease = 0, ask.lease_seconds * 1000000
local holders = redis.call('HGETALL', keys.holders)
for i = 1, #holders, 2 do
  local count, ends = string.match(holders[i + 1], '^(%d+) (%d+)$')
  if holders[i] ~= ask.holder then
    ends = tonumber(ends)
    if stepped > 0 or ends > now + 2 * lease then
      ends = math.min(ends - stepped, now + lease)
      redis.call('HSET', keys.holders, holders[i], count .. ' ' .. string.format('%d', ends))
    end
    if ends <= now then redis.call('HDEL', keys.holders, holders[i]) else others = others + tonumber(count) end
  end
end
local room = ask.max_concurrency > 0 and ask.max_concurrency - others - ask.in_flight or ask.wanted
local most = math.max(0, math.min(ask.wanted, room))

-- Grants: starts in time, evenly spaced, as far ahead as the horizon.
local horizon = policy.horizon_seconds * 1000000
-- Reported tokens stop the pool for no longer than a refusal can.
local function bounded(at) return math.min(math.max(at, now), now + longest) end
next_call, next_token = math.max(next_call, now), token_seconds > 0 and bounded(next_token) or now
local starts, again = {}, 0
while #starts < most do
  local at = math.max(next_call, next_token)
  if at >= now + horizon then
    if next_call >= next_token then state.limited_at = now end
    again = math.ceil((at - now - horizon / 2) / 1000)
    break
  end
  if next_call > now + horizon / 2 then state.limited_at = now end
  table.insert(starts, math.floor((at - now) / 1000))
  passing, passing_at = passing * math.exp(math.min(0, passing_at - at) / fade) + 1 / policy.passing_seconds, at
  next_call = at + 1000000 / rate
  next_token = at >= next_token and at + expected * token_seconds * 1000000
    or next_token + expected * token_seconds * 1000000
end
next_token = bounded(next_token)
local crowded = again == 0 and #starts < ask.wanted
-- At the latest after a second: a user may have set another limit.
again = math.min(again, 1000)
if crowded then again = math.ceil(policy.poll_seconds * 1000) end

local in_flight = ask.in_flight + #starts
if in_flight > 0 then
  redis.call('HSET', keys.holders, ask.holder, in_flight .. ' ' .. string.format('%d', now + lease))
else
  redis.call('HDEL', keys.holders, ask.holder)
end
local kept = {
  rate = rate, good = good, grown = grown, at = now, limited_at = of('limited_at', 0), expected = expected,
  next_call = next_call, next_token = next_token, stepped_at = stepped_at, doubled_at = of('doubled_at', 0), held_at = held_at, streak = streak,
  asked_wait = asked_wait, cost = math.max(1, cost), passing = passing, passing_at = passing_at, limit = limit,
}
if ask.told == 0 and not state.expected then kept.expected = nil end
for name, value in pairs(kept) do redis.call('HSET', keys.state, name, string.format('%.17g', value)) end
return {string.format('%d', now), tostring(expected), again, crowded and 1 or 0, unpack(starts)}
