-- Stores the verdict of a call, with its timeline entry. Only the holder of the token may; twice is once.
-- KEYS: claim, timeline (one hash tag).
-- ARGV: token, verdict class, verdict as stored, keep s, timeline entry ('' none), entries kept, timeline kept s.
-- Answer: 'S' stored, 'L' late (somebody else holds the claim), 'M' missing (Redis lost it).
-- Hot: the entry (layout: claim_entry.lua) is not taken apart. Flags are its first byte, the token bytes 11 to 14.
local raw = redis.call('GET', KEYS[1])
if not raw then return 'M' end
if string.sub(raw, 11, 14) ~= ARGV[1] then return 'L' end
local flags = string.byte(raw)
local published_given_back_verdict = flags % 16
if published_given_back_verdict > 3 then return 'S' end
local settled = string.char(flags - published_given_back_verdict + ARGV[2] * 4) .. string.sub(raw, 2) .. ARGV[3]
redis.call('SET', KEYS[1], settled, 'EX', ARGV[4])
if ARGV[5] ~= '' then
  if redis.call('LPUSH', KEYS[2], ARGV[5]) > tonumber(ARGV[6]) then redis.call('LTRIM', KEYS[2], 0, ARGV[6] - 1) end
  redis.call('EXPIRE', KEYS[2], ARGV[7])
end
return 'S'
