-- Writes facets of one user; a facet never goes back to an older offset.
-- KEYS: profile, timeline, inbox, inbox order, inbox unread.
-- ARGV: seconds that the mark of a removal is kept; then field, offset, body per write. An empty body removes the
-- facet but keeps its offset as a mark, "<offset>@<removed at, in seconds>".
-- Answers the names of the facets that an erasure removed.
local profile = KEYS[1]
local kept_s, now_s = tonumber(ARGV[1]), tonumber(redis.call('TIME')[1])
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

local function forget_marks()
  local stored = redis.call('HGETALL', profile)
  for i = 1, #stored, 2 do
    local removed_s = tonumber(string.match(stored[i + 1], '^%d+@(%d+)$'))
    if removed_s and now_s - removed_s > kept_s then
      redis.call('HDEL', profile, stored[i])
    end
  end
end

local erased_at = offset_of(redis.call('HGET', profile, 'erased'))
for i = 2, #ARGV, 3 do
  local field, offset, body = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local ended = personal(field) and offset < erased_at
  if not ended and offset_of(redis.call('HGET', profile, field)) < offset then
    redis.call('HSET', profile, field, ARGV[i + 1] .. (body == '' and '@' .. now_s or ' ' .. body))
    changed = true
    if field == 'erased' then
      erased_at = offset
      erase(offset)
    end
  end
end
if changed then
  forget_marks()
  redis.call('HINCRBY', profile, 'v', 1)
end
return removed
