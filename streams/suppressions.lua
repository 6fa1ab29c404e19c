-- Stores or removes the cause of one suppressed address, unless something newer is there.
-- KEYS: the suppression. ARGV: offset, cause ("" removes), seconds that the mark of a removal is kept.
local stored = redis.call('GET', KEYS[1])
if stored and tonumber(string.match(stored, '^%d+')) >= tonumber(ARGV[1]) then
  return 0
end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
end
return 1
