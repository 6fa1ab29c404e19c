-- Takes a mark back: under it nothing was sent. Only the holder of the claim may, and only its own mark.
-- KEYS: claim (layout: claim_entry.lua), mark (one hash tag). ARGV: token, mark as it was set.
if redis.call('GETRANGE', KEYS[1], 10, 13) == ARGV[1] and redis.call('GET', KEYS[2]) == ARGV[2] then
  return redis.call('DEL', KEYS[2])
end
return 0
