-- Stores why a candidate is stopped, unless it was stopped before. Returns the first reason, or ''.
-- ARGV: lifetime, candidate, why this look stops it ('': it does not)
local field = 'stands ' .. ARGV[2]
if ARGV[3] ~= '' then redis.call('HSETNX', keys.looks, field, ARGV[3]) end
return redis.call('HGET', keys.looks, field) or ''
