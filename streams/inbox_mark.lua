-- Marks messages of a user's inbox as read, or removes them. Answers what is left unread.
-- What has become too old to be shown goes first: nobody counts it any more.
-- KEYS: inbox, order, unread. ARGV: read at ms (0: remove), live channel, oldest time kept ms, notification ids.
local changed = 0
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[3])) do
  redis.call('HDEL', KEYS[1], old)
  redis.call('ZREM', KEYS[2], old)
  changed = changed + redis.call('SREM', KEYS[3], old)
end
for i = 4, #ARGV do
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
