-- md5, sha2 and base64, computed by the proxy.
local border = ...
local api, out, str = border.api, border.out, border.string
local digest, hmac, shake = api.digest, api.hmac, api.shake
local base64_encode, base64_decode = api.base64_encode, api.base64_decode
local type, error, byte, char, format, gsub, sub, concat, tonumber =
  type, error, string.byte, string.char, string.format, string.gsub, string.sub, table.concat, tonumber
local min, max, huge = math.min, math.max, math.huge
local ffi = require("ffi")

local HEX = {}
for i = 0, 255 do HEX[i] = format("%02x", i) end
-- Longest answer of most hashes.
local SHORT = 64
local digits = ffi.new("uint8_t[" .. 2 * SHORT .. "]")
local function hex_of(bytes, size)
  for i = 0, size - 1 do
    local two = HEX[bytes[i]]
    digits[2 * i], digits[2 * i + 1] = byte(two, 1), byte(two, 2)
  end
  return str(digits, 2 * size)
end
local bytes_type = ffi.typeof("const uint8_t *")
local cast = ffi.cast

local function text(value, level)
  if type(value) == "number" then return value .. "" end
  if type(value) ~= "string" then error("a string is expected", level + 1) end
  return value
end

-- Without an answer `out` is of some earlier call: finalisers run where the proxy is not to be reached.
local function unreachable() error("the proxy cannot be called from a finaliser", 0) end

-- Digits of an answer of up to SHORT bytes in `out`, without a call that LuaJIT does not compile.
local function short() return hex_of(cast(bytes_type, out.p), tonumber(out.n)) end

local function raw(kind, message)
  if digest(kind, message, #message, out) ~= 0 then unreachable() end
  return str(out.p, out.n)
end
local function hex(kind, message)
  if digest(kind, message, #message, out) ~= 0 then unreachable() end
  return short()
end
local function to_hex(bytes)
  return (gsub(bytes, ".", function(c) return HEX[byte(c)] end))
end
local function from_hex(digits_text)
  return (gsub(digits_text, "%x%x", function(two) return char(tonumber(two, 16)) end))
end

-- md5: sumhexa(text), sum(text), and a hash that is fed in parts.
local md5 = { _VERSION = "1.1.0" }
function md5.sum(message) return raw(0, text(message, 2)) end
function md5.sumhexa(message) return hex(0, text(message, 2)) end
md5.tohex = to_hex
function md5.new()
  local parts = {}
  local hash = {}
  function hash.update(self, part)
    parts[#parts + 1] = text(part, 2)
    return self
  end
  function hash.finish() return raw(0, concat(parts)) end
  return hash
end

-- sha2: hexadecimal digits of the text; without a text, a function that takes parts and, called with none, answers.
local sha2 = {}
local KINDS = {
  md5 = 0, sha1 = 1, sha224 = 2, sha256 = 3, sha384 = 4, sha512 = 5, sha512_224 = 6, sha512_256 = 7,
  sha3_224 = 8, sha3_256 = 9, sha3_384 = 10, sha3_512 = 11,
}
local kind_of = {}

-- Collects parts until it is called with none.
local function collector(finish)
  local parts, result = {}, nil
  local function feed(part)
    if part ~= nil then
      if result then error("the hash is finished: it takes no further part", 2) end
      parts[#parts + 1] = text(part, 2)
      return feed
    end
    result = result or finish(concat(parts))
    return result
  end
  return feed
end

for name, kind in pairs(KINDS) do
  local function finish(message) return hex(kind, message) end
  local function hash(message)
    if message == nil then return collector(finish) end
    return hex(kind, text(message, 2))
  end
  sha2[name], kind_of[hash] = hash, kind
end

-- So many bytes are computed at once.
local MOST = 65536
-- Up to here every whole number is one.
local MOST_EXACT = 2 ^ 53
-- A part reads ahead, since each read hashes the message again.
local AHEAD = 1024

local function whole_number(value, least, most, level)
  local number = tonumber(value)
  if not number or number < least or number > most or number % 1 ~= 0 then
    error(format("a number of bytes from %.0f to %.0f is expected", least, most), level + 1)
  end
  return number
end

-- Bytes of an answer of any length, where read(from, size) gives up to MOST of them.
local function span(read, from, size)
  if size <= MOST then return read(from, size) end
  local pieces, stop = {}, from + size
  for at = from, stop - 1, MOST do pieces[#pieces + 1] = read(at, min(MOST, stop - at)) end
  return concat(pieces)
end

-- The same bit by bit: a function that gives the next `size` bytes, or fewer where `total` are given. parts("seek", position)
-- goes elsewhere.
local function parts(read, total)
  local position, held, held_from = 0, "", 0
  return function(size, where)
    if size == "seek" then
      position = whole_number(where, 0, MOST_EXACT, 2)
      return
    end
    size = max(min(whole_number(size or 1, 0, MOST_EXACT, 2), total - position), 0)
    if position < held_from or position + size > held_from + #held then
      held, held_from = span(read, position, max(size, min(AHEAD, total - position))), position
      if #held < size then error("there are no more bytes", 2) end
    end
    local from = position - held_from
    position = position + size
    return to_hex(sub(held, from + 1, from + size))
  end
end

-- Digits of `size` bytes; with -1, endless parts, and with a size below that, parts of so many bytes.
local function answer(read, size)
  if size >= 0 then return to_hex(span(read, 0, size)) end
  return parts(read, size == -1 and huge or -size)
end

for kind, name in pairs { [0] = "shake128", [1] = "shake256" } do
  local function squeeze(size, message)
    -- What comes first is computed again for each part, so it goes no further than MOST.
    local function read(from, count)
      if shake(kind, min(from + count, MOST), message, #message, out) ~= 0 then unreachable() end
      return sub(str(out.p, out.n), from + 1)
    end
    return answer(read, size)
  end
  sha2[name] = function(size, message)
    size = max(whole_number(size, -MOST_EXACT, MOST, 2), -1)
    if message == nil then return collector(function(whole) return squeeze(size, whole) end) end
    return squeeze(size, text(message, 2))
  end
end

local function keyed(kind, key, message)
  if hmac(kind, key, #key, message, #message, out) ~= 0 then unreachable() end
  return short()
end
local function keyed_collector(kind, key)
  return collector(function(message) return keyed(kind, key, message) end)
end

function sha2.hmac(hash, key, message)
  local kind = kind_of[hash]
  if not kind then error("unknown hash function", 2) end
  key = text(key, 2)
  if message == nil then return keyed_collector(kind, key) end
  return keyed(kind, key, text(message, 2))
end
sha2.hex_to_bin, sha2.hex2bin, sha2.bin_to_hex, sha2.bin2hex = from_hex, from_hex, to_hex, to_hex

-- base64: an encoder is the pair of characters for 62 and 63, and for the end.
local base64 = {}
local function alphabet(s62, s63, pad) return { s62 or "+", s63 or "/", pad or "=" } end
base64.makeencoder, base64.makedecoder = alphabet, alphabet

local function exchange(message, from, to)
  local map = { [from[1]] = to[1], [from[2]] = to[2], [from[3]] = to[3] }
  return (gsub(message, "[^%w]", map))
end
local USUAL = alphabet()

function base64.encode(message, encoder)
  message = text(message, 2)
  if base64_encode(message, #message, 0, out) ~= 0 then unreachable() end
  local encoded = str(out.p, out.n)
  if encoder ~= nil then return exchange(encoded, USUAL, encoder) end
  return encoded
end

-- Also without padding, and from the alphabet of URLs; nil for what is no base64 at all.
function base64.decode(message, decoder)
  message = text(message, 2)
  if decoder ~= nil then message = exchange(message, decoder, USUAL) end
  if base64_decode(message, #message, out) == 0 then return str(out.p, out.n) end
  return nil
end
-- Ours: without padding, in the alphabet of URLs.
function base64.encode_url(message)
  message = text(message, 2)
  if base64_encode(message, #message, 1, out) ~= 0 then unreachable() end
  return str(out.p, out.n)
end
sha2.bin_to_base64, sha2.base64_to_bin = base64.encode, base64.decode
sha2.bin2base64, sha2.base642bin = base64.encode, base64.decode

border.modules.md5, border.modules.sha2, border.modules.base64 = md5, sha2, base64
-- For the hashes that `blake.lua` adds.
border.digests = {
  text = text, whole_number = whole_number, collector = collector, short = short, SHORT = SHORT, answer = answer,
  unreachable = unreachable, MOST_EXACT = MOST_EXACT,
}
return md5
