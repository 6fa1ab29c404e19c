-- Slows a provider down as it asked, for all workers.
-- KEYS: the provider's buckets (limits_take.lua; f, ft: slowed down to this part of the rate, at this time in us),
--   its throttles (a hash: whom or what it wants to be left alone with -> until, ms).
-- ARGV: 1 when calls were refused whoever they were for, ms for which it wants no call at all (0: it did not say),
--   then scopes, each with its ms.
-- Answer: the part of the rate in percent when it was slowed down by this; 0 when it was not.
local LEAST = 0.01
local AGAIN_US = 2000000
local MANY, MOST = 500, 1000

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now, pause = math.floor(now_us / 1000), tonumber(ARGV[2])
local slowed = 0

if ARGV[1] == '1' then
  follow_clock(KEYS[1], now_us)
  local stored = redis.call('HMGET', KEYS[1], 'f', 'ft', 't')
  local factor, from, filled = tonumber(stored[1] or 1), tonumber(stored[2] or 0), tonumber(stored[3] or 0)
  local free = now_us + pause * 1000
  -- Calls that were under way together say the same: one step down in two seconds.
  if now_us >= from + AGAIN_US then
    factor = math.max(LEAST, factor_at(factor, from, now_us) / 2)
    slowed = math.ceil(factor * 100)
  end
  if slowed > 0 or pause > 0 then
    redis.call('HSET', KEYS[1], 'a', '0', 'b', '0')
    from, filled = math.max(from, free), math.max(filled, free)
  end
  redis.call('HSET', KEYS[1], 'f', string.format('%.6f', factor), 'ft', string.format('%.0f', from),
    't', string.format('%.0f', filled))
  redis.call('PEXPIRE', KEYS[1], 60000 + math.max(0, math.floor((filled - now_us) / 1000)))
end

local kept = redis.call('HLEN', KEYS[2])
if kept > MANY then
  local fields = redis.call('HGETALL', KEYS[2])
  for at = 1, #fields, 2 do
    if tonumber(fields[at + 1]) <= now then kept = kept - redis.call('HDEL', KEYS[2], fields[at]) end
  end
end
for at = 3, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[2], ARGV[at])
  if known or kept < MOST then
    if not known then kept = kept + 1 end
    redis.call('HSET', KEYS[2], ARGV[at], string.format('%.0f', math.max(tonumber(known or 0), now + ARGV[at + 1])))
  end
end
if kept > 0 then redis.call('PEXPIRE', KEYS[2], 3700000) end
return slowed
