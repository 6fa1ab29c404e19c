-- Marks messages of a user's inbox as read, or removes them. Answers what is left unread.
-- KEYS: inbox, order, unread. ARGV: read at ms (0: remove), live channel, notification ids.
local changed = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  changed = changed + redis.call('SREM', KEYS[3], id)
  if ARGV[1] == '0' then
    redis.call('ZREM', KEYS[2], id)
    changed = changed + redis.call('HDEL', KEYS[1], id)
  else
    local stored = redis.call('HGET', KEYS[1], id)
    local seq, content = string.match(stored or '', '^(%d+) 0 (.*)$')
    if seq then
      redis.call('HSET', KEYS[1], id, seq .. ' ' .. ARGV[1] .. ' ' .. content)
    end
  end
end
local left = redis.call('SCARD', KEYS[3])
if changed > 0 then
  redis.call('PUBLISH', ARGV[2], (redis.call('HGET', KEYS[1], 'seq') or '0') .. ' ' .. left)
end
return left
