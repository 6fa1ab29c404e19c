-- The server's clock may be set back. What a provider's buckets keep of times goes back with it: they would lie ahead
-- until the clock is there again, and look like a pause, or like workers that hold tokens all the while.
-- n = the newest time at which the buckets were asked (us). What an older release wrote has none, and is taken as it is.
local function follow_clock(key, now_us)
  local back_us = tonumber(redis.call('HGET', key, 'n') or 0) - now_us
  if back_us <= 0 then return end
  local back_ms = math.floor(back_us / 1000)
  redis.call('HSET', key, 'n', string.format('%.0f', now_us))
  local fields = redis.call('HGETALL', key)
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    if name == 't' or name == 'ft' then
      value = string.format('%.0f', value - back_us)
    elseif string.sub(name, 1, 2) == 'w:' then
      value = string.gsub(value, '^(%a+ %d+) (%d+) (%d+)', function(who, dies, asked)
        return string.format('%s %.0f %.0f', who, dies - back_ms, asked - back_ms)
      end)
    end
    redis.call('HSET', key, name, value)
  end
end
