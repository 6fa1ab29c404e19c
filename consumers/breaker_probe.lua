-- May a few calls test whether an open breaker's provider is back? Once per round of probes.
-- KEYS: the breaker. ARGV: probes of a round, ms until the next round when these tell nothing.
-- Answer: how many calls may be made.
local stored = redis.call('HMGET', KEYS[1], 'state', 'until')
if stored[1] ~= 'open' then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < tonumber(stored[2]) then return 0 end
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2]), 'good', 0)
return tonumber(ARGV[1])
