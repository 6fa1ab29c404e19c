-- Takes the right to send one delivery now. The order of the questions is the contract.
-- Or ends it without a call: then the claim is settled as it is taken, and what was seen need not hold any more.
-- KEYS: claim, profile, cancel flag (one hash tag).
-- ARGV: address, generation, record call, token, lease ms, keep s, profile version seen, cancel seen, forced,
-- verdict class (0: a call follows), verdict as stored.
-- Answer: one character (see Answer in claims.py) and the entry as it now is.
local address, token = ARGV[1], ARGV[4]
local generation, record_call = tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_ms()
local takeovers, answer = 0, 'C'

local raw = redis.call('GET', KEYS[1])
local e = raw and read_entry(raw)
local equal = false
if e then
  equal = e.generation == generation and e.record_call == record_call
  if e.address ~= address then return 'D' .. raw end
  if e.generation > generation or (e.generation == generation and e.record_call > record_call) then return 'O' .. raw end
  local open = e.verdict == 0 and not e.given_back
  if open and e.lease_end > now then return 'L' .. raw end
  local redrive = ARGV[9] == '1' and generation > e.generation
  if (e.verdict == 1 and not redrive) or (equal and e.verdict > 0) then return 'F' .. raw end
end
local verdict = tonumber(ARGV[10])
if verdict == 0 then
  if (redis.call('HGET', KEYS[2], 'v') or '0') ~= ARGV[7] or redis.call('EXISTS', KEYS[3]) ~= tonumber(ARGV[8]) then
    return 'R'
  end
end
if equal then
  -- The number of a call that was given back was not used, so it is used now.
  takeovers = e.takeovers
  if not e.given_back then takeovers, answer = math.min(takeovers + 1, MAX_TAKEOVERS), 'T' end
end
local mine = packed_entry({
  published = false, given_back = false, verdict = verdict, generation = generation, record_call = record_call,
  takeovers = takeovers, lease_end = now + tonumber(ARGV[5]), token = token, address = address, detail = ARGV[11],
})
redis.call('SET', KEYS[1], mine, 'EX', ARGV[6])
return answer .. mine
