-- Gives a reserved place back: nothing was sent. Twice is once.
-- KEYS: claim (layout: claim_entry.lua), then a sorted set for each cap (one hash tag). ARGV: token, member.
-- Who lost the claim gives nothing back: by now the place may be that of the next holder. What counts, counts for ever.
if redis.call('GETRANGE', KEYS[1], 10, 13) == ARGV[1] then
  for set = 2, #KEYS do
    local there = redis.call('ZSCORE', KEYS[set], ARGV[2])
    if there and tonumber(there) ~= math.huge then redis.call('ZREM', KEYS[set], ARGV[2]) end
  end
end
return 1
