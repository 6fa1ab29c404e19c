-- Reserves a place under each cap for the holder of a claim: in all of them, or in none.
-- KEYS: claim, then a sorted set for each cap (one hash tag).
-- ARGV: token, group, member, keep s, then how many each set may hold.
-- A member is one delivery; it begins with its group, and a group counts once. Its score is the end of the lease under
-- which its call is made, infinite once it was sent. Where the lease has run out nobody knows: its place stays taken.
-- Answer: nil the claim is not ours (layout: claim_entry.lua), 0 reserved, -n the nth cap is full of what was sent,
-- n ms until the first lease ends under a cap that is full only with those that are still being sent.
-- Hot: a set with fewer members than places has one left, whatever they are, so it is looked at only when it has not.
local raw = redis.call('GETRANGE', KEYS[1], 4, 13)
if string.sub(raw, 7) ~= ARGV[1] then return false end
local group, bytes = ARGV[2], string.len(ARGV[2])
local now, wait, members = nil, 0, {}

for set = 2, #KEYS do
  local most = tonumber(ARGV[set + 3])
  members[set] = redis.call('ZCARD', KEYS[set])
  if members[set] >= most then
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local found = redis.call('ZRANGE', KEYS[set], 0, -1, 'WITHSCORES')
    local counted, held, sent, first_end = {}, 0, 0, math.huge
    for at = 1, #found, 2 do
      local other, ends = string.sub(found[at], 1, bytes), tonumber(found[at + 1])
      if counted[other] == nil then counted[other], held = false, held + 1 end
      if ends <= now or ends == math.huge then
        if not counted[other] then counted[other], sent = true, sent + 1 end
      elseif ends < first_end then
        first_end = ends
      end
    end
    if counted[group] == nil and held >= most then
      if sent >= most then return 1 - set end
      wait = math.max(wait, first_end - now)
    end
  end
end
if wait > 0 then return wait end

local lease_end = struct.unpack('>I6', raw)
for set = 2, #KEYS do
  if redis.call('ZADD', KEYS[set], 'NX', lease_end, ARGV[3]) == 0 then
    -- A holder before us left it: what came of its call nobody heard.
    if tonumber(redis.call('ZSCORE', KEYS[set], ARGV[3])) ~= lease_end then
      redis.call('ZADD', KEYS[set], 'inf', ARGV[3])
    end
  elseif members[set] == 0 then
    redis.call('EXPIRE', KEYS[set], ARGV[4])
  end
end
return 0
