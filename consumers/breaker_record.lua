-- Adds what calls came to, opens or closes the breaker of one provider.
-- KEYS: the breaker (a hash): ring = the newest results ('1' failed), state, until (ms), period (ms), reason, good.
-- ARGV: results of ordinary calls, results of probes, config hold (1: a person must act), window, least calls,
--   first period ms, longest period ms, hold period ms, probes that must succeed, calls, calls to be repeated.
-- Answer: the new state ('open', 'closed'; '' nothing changed), calls and repeats of this minute and the last.
local results, probes, hold = ARGV[1], ARGV[2], ARGV[3] == '1'
local window, least = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', KEYS[1], 'state', 'ring', 'period', 'good', 'reason')
local is_open, ring = stored[1] == 'open', stored[2] or ''
local change = ''

local function failures(text)
  local _, count = string.gsub(text, '1', '')
  return count
end

local function open(period, reason)
  if not is_open then change = 'open' end
  redis.call('HSET', KEYS[1], 'state', 'open', 'until', string.format('%.0f', now + period), 'period', period,
    'reason', reason, 'good', 0)
end

if hold then
  open(tonumber(ARGV[8]), 'config')
elseif is_open then
  -- Calls that began before it opened say nothing new: only probes count.
  if failures(probes) > 0 then
    local longest = stored[5] == 'config' and ARGV[8] or ARGV[7]
    open(math.min(tonumber(stored[3]) * 2, tonumber(longest)), stored[5])
  elseif #probes > 0 then
    local good = redis.call('HINCRBY', KEYS[1], 'good', #probes)
    if good >= tonumber(ARGV[9]) then
      redis.call('HDEL', KEYS[1], 'state', 'ring', 'period', 'good', 'reason', 'until')
      change = 'closed'
    end
  end
else
  ring = string.sub(ring .. results .. probes, -window)
  redis.call('HSET', KEYS[1], 'ring', ring)
  if #ring >= least and failures(ring) * 2 > #ring then open(tonumber(ARGV[6]), 'failures') end
end
local minute = math.floor(now / 60000)
local counted = redis.call('HMGET', KEYS[1], 'minute', 'calls', 'repeats', 'calls_before', 'repeats_before')
local age = minute - (tonumber(counted[1]) or 0)
local calls, repeats, calls_before, repeats_before = 0, 0, 0, 0
if age == 0 then
  calls, repeats, calls_before, repeats_before = counted[2], counted[3], counted[4], counted[5]
elseif age == 1 then
  calls_before, repeats_before = counted[2], counted[3]
end
calls, repeats = calls + ARGV[10], repeats + ARGV[11]
redis.call('HSET', KEYS[1], 'minute', minute, 'calls', calls, 'repeats', repeats,
  'calls_before', calls_before, 'repeats_before', repeats_before)
redis.call('PEXPIRE', KEYS[1], 86400000)
return { change, calls + calls_before, repeats + repeats_before }
