-- Stores the verdict of a call, with its timeline entry. Only the holder of the token may; twice is once.
-- KEYS: claim, timeline (one hash tag).
-- ARGV: the claim as its holder took it, verdict class, verdict as stored, keep s, timeline entry ('' none),
--   entries kept, timeline kept s.
-- Answer: 'S' stored, 'L' late (somebody has claimed it since), 'M' Redis had lost it, or was set back to an older one
--   that nobody holds any more: stored anew, unless another address with the same intent has claimed it meanwhile.
-- Hot: the entry (layout: claim_entry.lua) is not taken apart. Flags are its first byte, the token bytes 11 to 14.
local raw, mine, answer = redis.call('GET', KEYS[1]), ARGV[1], 'S'
if not raw or string.sub(raw, 11, 14) ~= string.sub(mine, 11, 14) then
  if raw then
    if string.sub(raw, 15, #mine) ~= string.sub(mine, 15) then return 'M' end
    -- Whoever claims later has a later record, or has taken over once more, or its lease ends later.
    local function numbers(claim)
      local flags, generation, call, lease_end = struct.unpack('>I1I1I2I6', claim)
      local is_given_back = math.floor(flags / 2) % 2 == 1
      return (generation * 65536 + call) * 4 + math.floor(flags / 16) % 4, is_given_back and 0 or lease_end
    end
    local theirs, their_end = numbers(raw)
    local ours, our_end = numbers(mine)
    if theirs > ours or (theirs == ours and their_end >= our_end) then return 'L' end
  end
  raw, answer = mine, 'M'
end
local flags = string.byte(raw)
local published_given_back_verdict = flags % 16
if published_given_back_verdict > 3 then return 'S' end
local settled = string.char(flags - published_given_back_verdict + ARGV[2] * 4) .. string.sub(raw, 2) .. ARGV[3]
redis.call('SET', KEYS[1], settled, 'EX', ARGV[4])
if ARGV[5] ~= '' then
  if redis.call('LPUSH', KEYS[2], ARGV[5]) > tonumber(ARGV[6]) then redis.call('LTRIM', KEYS[2], 0, ARGV[6] - 1) end
  redis.call('EXPIRE', KEYS[2], ARGV[7])
end
return answer
