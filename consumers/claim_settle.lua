-- Stores the verdict of a call, with its timeline entry. Only the holder of the token may; twice is once.
-- KEYS: claim, timeline (one hash tag).
-- ARGV: token, verdict class, verdict as stored, keep s, timeline entry ('' none), entries kept, timeline kept s.
-- Answer: 'S' stored, 'L' late (somebody else holds the claim), 'M' missing (Redis lost it).
local raw = redis.call('GET', KEYS[1])
if not raw then return 'M' end
local e = read_entry(raw)
if e.token ~= ARGV[1] then return 'L' end
if e.verdict > 0 then return 'S' end
e.verdict, e.detail, e.given_back = tonumber(ARGV[2]), ARGV[3], false
redis.call('SET', KEYS[1], packed_entry(e), 'EX', ARGV[4])
if ARGV[5] ~= '' then
  redis.call('LPUSH', KEYS[2], ARGV[5])
  redis.call('LTRIM', KEYS[2], 0, ARGV[6] - 1)
  redis.call('EXPIRE', KEYS[2], ARGV[7])
end
return 'S'
