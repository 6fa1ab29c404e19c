-- Marks a claim of this token: 'P' its verdict is on the log (the stored verdict is cut off), 'G' given back unused.
-- KEYS: claim. ARGV: token, mark, keep s.
local raw = redis.call('GET', KEYS[1])
if not raw then return 0 end
local e = read_entry(raw)
if e.token ~= ARGV[1] then return 0 end
if ARGV[2] == 'P' then
  if e.verdict == 0 or e.published then return 0 end
  e.published, e.detail = true, ''
else
  if e.verdict > 0 then return 0 end
  e.given_back, e.lease_end = true, 0
end
redis.call('SET', KEYS[1], packed_entry(e), 'EX', ARGV[3])
return 1
