-- Puts one message into a user's inbox; a message put twice counts once, and read stays read.
-- KEYS: inbox, order, unread, profile. ARGV: notification id, body, at ms, read at ms (0: unread),
-- messages kept, oldest time kept ms, seconds the keys live, live channel.
-- A message is stored as "<seq> <read at> <body>". Answers 1 when anything changed.
local inbox, order, unread = KEYS[1], KEYS[2], KEYS[3]
local id, body, at_ms, read_at = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local oldest_ms = ARGV[6]

local function tell(text)
  local seq = redis.call('HGET', inbox, 'seq')
  redis.call('PUBLISH', ARGV[8], seq .. ' ' .. redis.call('SCARD', unread) .. text)
end

local function add()
  -- The sequence follows the clock, so that it goes on rising even after Redis was emptied and rebuilt.
  local now = redis.call('TIME')
  local last = tonumber(redis.call('HGET', inbox, 'seq') or '0')
  local seq = string.format('%d', math.max(last + 1, now[1] * 1000 + math.floor(now[2] / 1000)))
  redis.call('HSET', inbox, 'seq', seq, id, seq .. ' ' .. read_at .. ' ' .. body)
  redis.call('ZADD', order, at_ms, id)
  if read_at == '0' then
    redis.call('SADD', unread, id)
  end
end

local function trim()
  local gone = redis.call('ZRANGEBYSCORE', order, '-inf', '(' .. oldest_ms)
  local excess = redis.call('ZCARD', order) - #gone - tonumber(ARGV[5])
  if excess > 0 then
    for _, old in ipairs(redis.call('ZRANGE', order, #gone, #gone + excess - 1)) do
      gone[#gone + 1] = old
    end
  end
  for _, old in ipairs(gone) do
    redis.call('HDEL', inbox, old)
    redis.call('ZREM', order, old)
    redis.call('SREM', unread, old)
  end
  for i = 1, 3 do
    redis.call('EXPIRE', KEYS[i], ARGV[7])
  end
end

-- What was written before the user was erased does not come back, whatever is replayed.
local erased = redis.call('HGET', KEYS[4], 'erased')
local erased_at_ms = erased and tonumber(string.match(erased, ' (%d+)$'))
if (erased_at_ms and at_ms <= erased_at_ms) or at_ms < tonumber(oldest_ms) then
  return 0
end
local stored = redis.call('HGET', inbox, id)
if not stored then
  add()
  trim()
  tell(' ' .. id .. ' ' .. read_at .. ' ' .. body)
  return 1
end
if read_at ~= '0' and redis.call('SREM', unread, id) == 1 then
  local seq, content = string.match(stored, '^(%d+) %d+ (.*)$')
  redis.call('HSET', inbox, id, seq .. ' ' .. read_at .. ' ' .. content)
  tell('')
  return 1
end
return 0
