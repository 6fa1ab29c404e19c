-- Keeps a rebuild honest: it counts only while its lock was never lost and the server is the one it began on.
-- KEYS: lock, epoch, applied (one hash tag). ARGV: step, token, run_id, lock ms, then place and offset by turns.
-- hold: the rebuild goes on. finish: Redis may be trusted. note: a handler has applied what came by.
local function note()
  for i = 5, #ARGV, 2 do
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  end
  return 1
end

if ARGV[1] == 'note' then
  -- After a restart the handler may already be ahead of what was lost; its word counts again after the rebuild.
  return redis.call('GET', KEYS[2]) == ARGV[3] and note() or 0
end
if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
if ARGV[1] == 'hold' then
  return redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
redis.call('SET', KEYS[2], ARGV[3])
redis.call('DEL', KEYS[1])
return note()
