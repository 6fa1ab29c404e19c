-- The packed claim. consumers/claims.py reads the same layout and writes the first claim of a delivery itself;
-- claim_settle.lua and claim_mark.lua change it in place.
--   flags 1 (bit 0 published, bit 1 given back, bits 2-3 verdict: 0 none, 1 sent, 2 waiting, 3 ended,
--   bits 4-5 takeovers), generation 1, record call 2, lease end 6 (ms, this server's TIME),
--   token 4 (the last byte: the number of the provider that is called),
--   address (13 bytes of a single, 7 of a recipient), verdict as the worker stored it (cut off once published).
-- The number of the call is record call + takeovers. Up to 28 bytes fit the allocator's 48-byte class.
local HEADER = '>I1I1I2I6c4'
local HEADER_BYTES = 14
local MAX_TAKEOVERS = 3

local function read_entry(raw)
  local flags, generation, record_call, lease_end, token = struct.unpack(HEADER, raw)
  local body = HEADER_BYTES + (string.sub(raw, HEADER_BYTES + 1, HEADER_BYTES + 1) == 'n' and 13 or 7)
  return {
    published = flags % 2 == 1,
    given_back = math.floor(flags / 2) % 2 == 1,
    verdict = math.floor(flags / 4) % 4,
    takeovers = math.floor(flags / 16) % 4,
    generation = generation, record_call = record_call, lease_end = lease_end, token = token,
    address = string.sub(raw, HEADER_BYTES + 1, body),
    detail = string.sub(raw, body + 1),
  }
end

local function packed_entry(e)
  local flags = (e.published and 1 or 0) + (e.given_back and 2 or 0) + e.verdict * 4 + e.takeovers * 16
  return struct.pack(HEADER, flags, e.generation, e.record_call, e.lease_end, e.token) .. e.address .. e.detail
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
