-- BLAKE2 and BLAKE3 in sha2, computed by the proxy.
--
-- What makes functions is in functions of its own, since LuaJIT compiles none of them.
local border = ...
local api, out, str, sha2 = border.api, border.out, border.string, border.modules.sha2
local blake2, blake2x, blake3 = api.blake2, api.blake2x, api.blake3
local digests = border.digests
local text, whole_number, collector, answer = digests.text, digests.whole_number, digests.collector, digests.answer
local short, SHORT, unreachable, MOST_EXACT = digests.short, digests.SHORT, digests.unreachable, digests.MOST_EXACT
local INVALID = border.INVALID
local error, pairs, ipairs, abs = error, pairs, ipairs, math.abs

-- An optional text of so many bytes at the most.
local function bounded(value, most, what, level)
  if value == nil then return "" end
  value = text(value, level + 1)
  if #value > most then error(what .. " of up to " .. most .. " bytes is expected", level + 1) end
  return value
end

-- Answers of a length that is part of the hash. The trees of bp and sp take no salt.
local FIXED = {
  blake2b = { kind = 0, most = 64, salt = 32 }, blake2s = { kind = 1, most = 32, salt = 16 },
  blake2bp = { kind = 2, most = 64, salt = 0 }, blake2sp = { kind = 3, most = 32, salt = 0 },
}
for name, facts in pairs(FIXED) do
  local kind, most, most_salt = facts.kind, facts.most, facts.salt
  local function hash(message, key, salt, size)
    if blake2(kind, size, key, #key, salt, #salt, message, #message, out) ~= 0 then unreachable() end
    return short()
  end
  local function later(key, salt, size)
    return collector(function(message) return hash(message, key, salt, size) end)
  end
  sha2[name] = function(message, key, salt, size)
    key, salt = bounded(key, most, "a key", 2), bounded(salt, most_salt, "a salt", 2)
    size = whole_number(size or most, 1, most, 2)
    if message == nil then return later(key, salt, size) end
    return hash(text(message, 2), key, salt, size)
  end
end

-- Names for shorter answers, by their bits.
for name, lengths in pairs { blake2b = { 160, 256, 384 }, blake2s = { 128, 160, 224 } } do
  local hash = sha2[name]
  for _, bits in ipairs(lengths) do
    sha2[name .. "_" .. bits] = function(message, key, salt) return hash(message, key, salt, bits / 8) end
  end
end
sha2.blake2, sha2.blake2b_512, sha2.blake2s_256 = sha2.blake2b, sha2.blake2b, sha2.blake2s

-- Answers of any length that is known from the beginning: it is part of the hash. `endless` says that it is not known.
local EXTENDED = {
  blake2xb = { kind = 0, key = 64, salt = 32, endless = 2 ^ 32 - 1 },
  blake2xs = { kind = 1, key = 32, salt = 16, endless = 2 ^ 16 - 1 },
}
for name, facts in pairs(EXTENDED) do
  local kind, most_key, most_salt, endless = facts.kind, facts.key, facts.salt, facts.endless
  local function compute(total, from, count, message, key, salt)
    local code = blake2x(kind, total, from, count, key, #key, salt, #salt, message, #message, out)
    if code ~= 0 then unreachable() end
  end
  local function long(size, message, key, salt)
    local total = size == -1 and endless or abs(size)
    return answer(function(from, count)
      compute(total, from, count, message, key, salt)
      return str(out.p, out.n)
    end, size)
  end
  local function hash(size, message, key, salt)
    if size < 0 or size > SHORT then return long(size, message, key, salt) end
    compute(size, 0, size, message, key, salt)
    return short()
  end
  local function later(size, key, salt)
    return collector(function(message) return hash(size, message, key, salt) end)
  end
  sha2[name] = function(size, message, key, salt)
    size = whole_number(size, 1 - endless, endless - 1, 2)
    key, salt = bounded(key, most_key, "a key", 2), bounded(salt, most_salt, "a salt", 2)
    if message == nil then return later(size, key, salt) end
    return hash(size, text(message, 2), key, salt)
  end
end

-- Answers of any length, the shorter ones the beginning of the longer ones.
local function compute(derives, from, count, message, key)
  if blake3(derives, key, #key, from, count, message, #message, out) ~= 0 then unreachable() end
end
local function long(derives, message, key, size)
  return answer(function(from, count)
    compute(derives, from, count, message, key)
    return str(out.p, out.n)
  end, size)
end
local function hash(derives, message, key, size)
  if size < 0 or size > SHORT then return long(derives, message, key, size) end
  compute(derives, 0, size, message, key)
  return short()
end
local function later(derives, key, size)
  return collector(function(message) return hash(derives, message, key, size) end)
end
local function begin(derives, message, key, size)
  size = whole_number(size or 32, -MOST_EXACT, MOST_EXACT, 3)
  if message == nil then return later(derives, key, size) end
  return hash(derives, text(message, 3), key, size)
end
function sha2.blake3(message, key, size)
  key = bounded(key, 32, "a key", 2)
  return (begin(0, message, key, size))
end
function sha2.blake3_derive_key(message, context, size)
  context = text(context, 2)
  if blake3(1, context, #context, 0, 0, "", 0, out) == INVALID then error("a context in UTF-8 is expected", 2) end
  return (begin(1, message, context, size))
end
return sha2
