-- Hands tokens of one provider to one worker's pocket.
-- KEYS: the provider's buckets (a hash): a = tokens of all, b = tokens of bulk, t = when they were last filled (us),
--   w:<worker> = class, tokens it holds, when the newest of them dies (ms), when it last asked (ms), its lane, and
--   when that was written for which it asked (ms; 0: for nothing),
--   f, ft = the part of the rate that the provider was slowed down to, and when (us; throttles_note.lua),
--   n = when they were last asked (us; limits_clock.lua).
-- A provider that wants no call until some time has its buckets filled from then on: t lies ahead.
-- ARGV: worker, class ("bulk" or "transactional"), tokens it holds unspent, wanted, rate per s, burst,
--   share reserved for transactional, life of a token ms, lane, when that was written which waits for them (ms).
-- Answer: tokens granted, ms after which asking again is worthwhile (0 when something was granted).
--
-- In any second at most R + burst: a bucket holds at most burst/2, and so do all pockets together.
local FORGOTTEN_MS = 1000
local CHUNK_S = 0.02
local EARLIER_MS, ASKS_MS, BEHIND_MS = 20, 100, 15

local worker, class = ARGV[1], ARGV[2]
local held, wanted, rate = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local half, reserved, life = ARGV[6] / 2, tonumber(ARGV[7]), tonumber(ARGV[8])
local lane, rank = ARGV[9], tonumber(ARGV[10])
local is_bulk = class == 'bulk'
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
follow_clock(KEYS[1], now_us)

local all, bulk, filled = half, half, now_us
local workers, others, others_of_class, is_earlier_asked = 1, 0, 0, false
local fields = redis.call('HGETALL', KEYS[1])
local stored = {}
for at = 1, #fields, 2 do
  local name, value = fields[at], fields[at + 1]
  if string.sub(name, 1, 2) ~= 'w:' then
    stored[name] = tonumber(value)
  elseif name ~= 'w:' .. worker then
    local its_class, its_held, dies, asked, its_lane, its_rank =
      string.match(value, '(%a+) (%d+) (%d+) (%d+) ?(%S*) ?(%d*)')
    if tonumber(asked) + FORGOTTEN_MS < now then
      redis.call('HDEL', KEYS[1], name)
    else
      local alive = tonumber(dies) > now and tonumber(its_held) or 0
      others = others + alive
      if its_class == class then
        workers, others_of_class = workers + 1, others_of_class + alive
        local since = tonumber(its_rank) or 0
        if its_lane == lane and since > 0 and since + EARLIER_MS < rank and tonumber(asked) + ASKS_MS > now then
          is_earlier_asked = true
        end
      end
    end
  end
end
if stored.f then rate = rate * factor_at(stored.f, stored.ft, now_us) end
if stored.t then
  local passed_s = math.max(0, now_us - stored.t) / 1000000
  all = math.min(half, stored.a + rate * passed_s)
  -- A late worker gets all that the bucket of all may hold: what bulk misses while it is late it never gets again.
  bulk = math.min(half, stored.b + rate * (1 - reserved) * passed_s)
  filled = math.max(now_us, stored.t)
end

local tokens, own_rate, room = all, rate, half
if is_bulk then
  tokens, own_rate, room = math.min(all, bulk), rate * (1 - reserved), half * (1 - reserved)
end
local share = math.max(1, math.floor(room / workers))
local space = math.min(share - held, room - others_of_class - held, half - others - held)
-- Bulk takes a chunk or nothing: one token at a time would cost a round trip each.
local least = is_bulk and math.max(1, math.floor(math.min(wanted, share / 2, own_rate * CHUNK_S))) or 1
-- What was written first goes first, whichever worker has it: else a lane is worked in the order of its partitions'
-- luck. But nothing is lost by that: a bucket that fills up is for everybody.
local is_behind = is_bulk and is_earlier_asked and tokens < half / 2
local grant, wait = 0, 0
if wanted > 0 then
  if tokens >= least and space >= least and not is_behind then
    grant = math.floor(math.min(wanted, tokens, space))
  else
    wait = math.max(1, math.ceil((least - tokens) / own_rate * 1000))
    if filled > now_us then wait = wait + math.ceil((filled - now_us) / 1000) end
    if space < least then wait = math.max(wait, 5) end
    if is_behind then wait = math.max(wait, BEHIND_MS) end
  end
end

redis.call('HSET', KEYS[1], 'a', string.format('%.6f', all - grant),
  'b', string.format('%.6f', is_bulk and bulk - grant or bulk), 't', string.format('%.0f', filled),
  'n', string.format('%.0f', now_us), 'w:' .. worker, string.format('%s %d %.0f %.0f %s %.0f', class, held + grant,
    now + life, now, lane, wanted > 0 and rank or 0))
redis.call('PEXPIRE', KEYS[1], 60000 + math.floor((filled - now_us) / 1000))
return { grant, wait }
