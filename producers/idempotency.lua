-- What became of one Idempotency-Key. One key: idem:{tenant/hash}, a string:
--   "R <body hash> <token>"   the first request is still running
--   "D <body hash> <answer>"  it was accepted with this answer
-- ARGV[1] says which step; answers are {word, detail}.
local entry = redis.call('GET', KEYS[1])
local kind = entry and string.sub(entry, 1, 1)

if ARGV[1] == 'begin' then -- hash, token, lock_ms
  if not entry then
    redis.call('SET', KEYS[1], 'R ' .. ARGV[2] .. ' ' .. ARGV[3], 'PX', ARGV[4])
    return {'begun', ''}
  end
  local hash_end = string.find(entry, ' ', 3, true)
  if string.sub(entry, 3, hash_end - 1) ~= ARGV[2] then
    return {'other_body', ''}
  end
  if kind == 'D' then
    return {'answered', string.sub(entry, hash_end + 1)}
  end
  return {'running', tostring(redis.call('PTTL', KEYS[1]))}
end

if ARGV[1] == 'finish' then -- hash, answer, keep_ms; a stored answer is never replaced: the first record in the log wins
  if kind ~= 'D' then
    redis.call('SET', KEYS[1], 'D ' .. ARGV[2] .. ' ' .. ARGV[3], 'PX', ARGV[4])
  end
  return {'stored', ''}
end

-- release: hash, token. Only the lock that this request took.
if entry == 'R ' .. ARGV[2] .. ' ' .. ARGV[3] then
  redis.call('DEL', KEYS[1])
end
return {'released', ''}
