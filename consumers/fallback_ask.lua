-- Whether a notification turns to its next channel now: the first who may start it does, whoever else asks.
-- KEYS: what is known of this fallback, then the claims of the asker's siblings (one hash tag).
-- ARGV: asker, its channel, wish (D for its delivery, C for its channel, O none of its own, N it must never start),
-- ms that the channel must have been asked for first, keep s, then the channel of each sibling.
-- Known is 'S' asker: started; 'N': never; else 'A' (somebody asked) or '-', when it was first spoken of (ms, this
-- server's TIME), and ',' channel for each that was given up.
-- Answer: what is known now, and the ms that are left until it may start ('' and 0 where nothing is known).
local CLAIM_SENT, CLAIM_ENDED = 1, 3
local asker, channel, wish, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[5]

local function keeps(known)
  redis.call('SET', KEYS[1], known, 'EX', keep)
  return known
end

local function holds(channels, one) return string.find(channels .. ',', ',' .. one .. ',', 1, true) end

local known = redis.call('GET', KEYS[1]) or ''
local kind = string.sub(known, 1, 1)
if kind == 'S' or kind == 'N' then return {known, 0} end
if wish == 'N' then return {keeps('N'), 0} end

local since, given_up = string.match(known, '^.(%d+)(.*)$')
local now = now_ms()
since, given_up = tonumber(since or now), given_up or ''
local left = tonumber(ARGV[4]) - (now - since)
if wish == 'C' and tonumber(ARGV[4]) > 0 and left > 0 then
  if known == '' then known = keeps(string.format('-%.0f', since)) end
  return {known, left}
end

local asked = kind == 'A' or wish ~= 'O'
if wish == 'C' and not holds(given_up, channel) then given_up = given_up .. ',' .. channel end
local goes_on = false
for i = 2, #KEYS do
  local raw = redis.call('GET', KEYS[i])
  local e = raw and read_entry(raw)
  if e and e.verdict == CLAIM_SENT then return {keeps('N'), 0} end
  local is_called = e and e.verdict == 0 and not e.given_back
  local has_ended = e and e.verdict == CLAIM_ENDED
  if is_called or not (has_ended or holds(given_up, ARGV[4 + i])) then goes_on = true end
end
if not asked then return {known, 0} end
if goes_on then return {keeps(string.format('A%.0f', since) .. given_up), 0} end
return {keeps('S' .. asker), 0}
