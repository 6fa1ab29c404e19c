-- Hands one worker a block of a day's budget, and takes back what it does not need.
-- KEYS: the day's account (a hash): d = drawn, r = given back; both only rise.
-- ARGV: the budget, wanted, the least that helps, d and r as this worker saw them last, given back now, ms the account
--   is kept. Whole micro-units below 2^53.
-- Answer: granted, d, r.
--
-- A Redis that lost its account is told by each worker that asks what that one knows of it: what others drew since, and
-- did not tell yet, may be drawn again. Towards the end blocks become small, so that little lies with others when one
-- finds nothing left.
local budget, wanted, least = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local stored = redis.call('HMGET', KEYS[1], 'd', 'r')
local drawn = math.max(tonumber(stored[1] or 0), tonumber(ARGV[4]))
local returned = math.max(tonumber(stored[2] or 0), tonumber(ARGV[5])) + tonumber(ARGV[6])
local left = budget - drawn + returned
local grant = 0
if wanted > 0 and left >= least then
  grant = math.min(wanted, math.max(least, math.floor(left / 8)))
end
drawn = drawn + grant
redis.call('HSET', KEYS[1], 'd', string.format('%.0f', drawn), 'r', string.format('%.0f', returned))
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return { grant, drawn, returned }
