-- Which digest each of these notifications goes out in; asked for all members of a window at once.
-- KEYS: for each its mark, then its cancel flag. ARGV[1] the digest they would go out in now, ARGV[2] seconds to keep,
-- ARGV[3] how many of them, the first, would: the others are only looked at.
-- Returns for each the mark that holds; '-' for a cancelled one; '' for one that waits, since it is only looked at, or
-- others of the window were marked before it came: what they go out in may be written already.
local found, is_first = {}, true
for at = 1, #KEYS, 2 do
  local mark = redis.call('GET', KEYS[at])
  if mark then
    is_first = false
  elseif redis.call('EXISTS', KEYS[at + 1]) == 1 then
    mark = '-'
  end
  found[#found + 1] = mark or ''
end
if is_first then
  for at = 1, tonumber(ARGV[3]) do
    if found[at] == '' then
      redis.call('SET', KEYS[2 * at - 1], ARGV[1], 'EX', ARGV[2])
      found[at] = ARGV[1]
    end
  end
end
return found
