-- Why a candidate is stopped, unless it was before: the first reason stands. Returns the one that stands, or ''.
-- ARGV: lifetime, candidate, why this look stops it, or ''
local field = 'stands ' .. ARGV[2]
if ARGV[3] ~= '' then redis.call('HSETNX', keys.looks, field, ARGV[3]) end
return redis.call('HGET', keys.looks, field) or ''
