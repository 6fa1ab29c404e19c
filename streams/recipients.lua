-- Writes facets of one user; a facet never goes back to an older offset.
-- KEYS: profile, timeline, inbox, inbox order, inbox unread.
-- ARGV: field, offset, body per write; an empty body removes the facet but keeps its offset as a mark.
-- Answers the names of the facets that an erasure removed.
local profile = KEYS[1]
local removed, changed = {}, false

local function offset_of(value)
  return value and tonumber(string.match(value, '^%d+')) or -1
end

local function personal(field)
  return field == 'user' or string.sub(field, 1, 7) == 'device/'
end

local function erase(before)
  local stored = redis.call('HGETALL', profile)
  for i = 1, #stored, 2 do
    if personal(stored[i]) and offset_of(stored[i + 1]) < before then
      redis.call('HDEL', profile, stored[i])
      if string.find(stored[i + 1], ' ', 1, true) then
        removed[#removed + 1] = stored[i]
      end
    end
  end
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
end

local erased_at = offset_of(redis.call('HGET', profile, 'erased'))
for i = 1, #ARGV, 3 do
  local field, offset, body = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local ended = personal(field) and offset < erased_at
  if not ended and offset_of(redis.call('HGET', profile, field)) < offset then
    redis.call('HSET', profile, field, body == '' and ARGV[i + 1] or ARGV[i + 1] .. ' ' .. body)
    changed = true
    if field == 'erased' then
      erased_at = offset
      erase(offset)
    end
  end
end
if changed then
  redis.call('HINCRBY', profile, 'v', 1)
end
return removed
