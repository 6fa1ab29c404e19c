-- Takes up to ARGV[2] tokens from KEYS[1] and notes what this instance (ARGV[1]) still wishes for.
-- Returns the number taken. The wish carries Redis's own time, so a dead instance's wish can be told.
local tokens = tonumber(redis.call('HGET', KEYS[1], 'tokens') or '0')
local wanted = tonumber(ARGV[2])
local taken = math.max(0, math.min(tokens, wanted))
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('HSET', KEYS[1], 'tokens', tokens - taken, 'wish:' .. ARGV[1], string.format('%d %d', wanted - taken, now_ms))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return taken
