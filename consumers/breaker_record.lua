-- Adds what calls came to, opens or closes the breaker of one provider.
-- KEYS: the breaker (a hash): ring = the newest results ('1' failed, '2' a dead address), state, until (ms),
--   period (ms), since (ms), reason (failures, config, operator), good.
-- ARGV: results of ordinary calls, results of probes, config hold (1: a person must act), window, least calls,
--   first period ms, longest period ms, hold period ms, probes that must succeed, calls, calls to be repeated.
-- Answer: the new state ('open', 'closed'; '' nothing changed), calls and repeats of this minute and the last,
--   how many results are kept, how many of them are dead addresses, why it is open.
local WINDOWS_KEPT = 2
local results, probes, hold = ARGV[1], ARGV[2], ARGV[3] == '1'
local window, least = tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', KEYS[1], 'state', 'ring', 'period', 'good', 'reason')
local is_open, ring, reason = stored[1] == 'open', stored[2] or '', stored[5] or ''
local change = ''

local function count(text, result)
  local _, found = string.gsub(text, result, '')
  return found
end

local function open(period, why)
  if not is_open then
    change = 'open'
    redis.call('HSET', KEYS[1], 'since', string.format('%.0f', now))
  end
  reason = why
  redis.call('HSET', KEYS[1], 'state', 'open', 'until', string.format('%.0f', now + period), 'period', period,
    'reason', why, 'good', 0)
end

if is_open and reason == 'operator' then
  -- A person opened it, a person closes it.
elseif hold then
  open(tonumber(ARGV[8]), 'config')
elseif is_open then
  -- Calls that began before it opened say nothing new: only probes count.
  if count(probes, '1') > 0 then
    open(math.min(tonumber(stored[3]) * 2, tonumber(reason == 'config' and ARGV[8] or ARGV[7])), reason)
  elseif #probes > 0 then
    local good = redis.call('HINCRBY', KEYS[1], 'good', #probes)
    if good >= (reason == 'config' and 1 or tonumber(ARGV[9])) then
      redis.call('HDEL', KEYS[1], 'state', 'ring', 'period', 'since', 'good', 'reason', 'until')
      change, ring, reason = 'closed', '', ''
    else
      -- Where few records come, a round may be a single one: the next need not wait for the round's end.
      redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now))
    end
  end
else
  ring = string.sub(ring .. results .. probes, -window * WINDOWS_KEPT)
  redis.call('HSET', KEYS[1], 'ring', ring)
  local newest = string.sub(ring, -window)
  if #newest >= least and count(newest, '1') * 2 > #newest then open(tonumber(ARGV[6]), 'failures') end
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
if reason ~= 'operator' then redis.call('PEXPIRE', KEYS[1], 86400000) end
return { change, calls + calls_before, repeats + repeats_before, #ring, count(ring, '2'), reason }
