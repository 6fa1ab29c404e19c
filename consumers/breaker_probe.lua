-- May a few calls test whether an open breaker's provider is back? Once per round of probes.
-- KEYS: the breaker. ARGV: probes of a round, ms until the next round when these tell nothing.
-- Answer: how many calls may be made: as many as have not succeeded yet since it opened or one failed. Of a config hold
-- it is one in each of its periods: a person is mending it.
local stored = redis.call('HMGET', KEYS[1], 'state', 'until', 'reason', 'period', 'good')
if stored[1] ~= 'open' then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left, is_hold = stored[2] - now, stored[3] == 'config'
-- What lies further ahead than any wait is of a time before the server's clock was set back.
local is_lost = stored[3] ~= 'operator' and left > math.max(stored[4], ARGV[2])
if left > 0 and not is_lost then return 0 end
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + (is_hold and stored[4] or ARGV[2])))
return is_hold and 1 or math.max(1, ARGV[1] - stored[5])
