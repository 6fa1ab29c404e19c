-- The part of its rate that a provider may be given at `now_us`: what it was slowed down to at `from_us`, and more
-- with every second since. Additive up, multiplicative down: workers find the pace that the provider bears.
local function factor_at(factor, from_us, now_us)
  return math.min(1, factor + math.max(0, now_us - from_us) / 1000000 * 0.05)
end
