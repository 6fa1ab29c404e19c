-- Says what became of a reserved place. Twice is once.
-- KEYS: claim, then a sorted set for each cap (one hash tag).
-- ARGV: token, member, 1 it was sent or may have been, 0 it was not, keep s.
-- Who lost the claim gives nothing back: by now the place may be that of the next holder. What counts, counts for ever.
if ARGV[3] == '1' then
  for set = 2, #KEYS do
    redis.call('ZADD', KEYS[set], 'inf', ARGV[2])
    redis.call('EXPIRE', KEYS[set], ARGV[4])
  end
elseif redis.call('GETRANGE', KEYS[1], 10, 13) == ARGV[1] then
  for set = 2, #KEYS do
    local there = redis.call('ZSCORE', KEYS[set], ARGV[2])
    if there and tonumber(there) ~= math.huge then redis.call('ZREM', KEYS[set], ARGV[2]) end
  end
end
return 1
