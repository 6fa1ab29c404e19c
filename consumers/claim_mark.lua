-- Marks a claim of this token: 'P' its verdict is on the log (the stored verdict is cut off), 'G' given back unused.
-- A claim given back that was taken over says again of the call in doubt when its lease ended and where it went.
-- KEYS: claim. ARGV: token, mark, keep s; with 'G': lease end and last byte of the token of the call in doubt, or ''.
-- Hot, so the entry (layout: claim_entry.lua) is read up to the longest address only and not taken apart.
local raw = redis.call('GETRANGE', KEYS[1], 0, 26)
if string.sub(raw, 11, 14) ~= ARGV[1] then return 0 end
local flags = string.byte(raw)
local verdict = math.floor(flags / 4) % 4
local body = string.byte(raw, 15) == 110 and 27 or 21
if ARGV[2] == 'P' then
  if verdict == 0 or flags % 2 == 1 then return 0 end
  raw = string.char(flags + 1) .. string.sub(raw, 2, body)
else
  if verdict > 0 then return 0 end
  local given_back = flags % 4 < 2 and flags + 2 or flags
  local numbers = string.sub(raw, 2, 14)
  if ARGV[4] ~= '' then
    numbers = string.sub(raw, 2, 4) .. string.sub(ARGV[4], 1, 6) .. string.sub(raw, 11, 13) .. string.sub(ARGV[4], 7)
  end
  raw = string.char(given_back) .. numbers .. string.sub(raw, 15, body)
end
redis.call('SET', KEYS[1], raw, 'EX', ARGV[3])
return 1
