-- Basic authentication with a decoder that a tracing compiler likes: tables and bit operations, no patterns.
require("rider.v2")
local envoy = require("envoy")
local byte, char, sub = string.byte, string.char, string.sub
local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift

local VALUES = {}
for i = 0, 255 do VALUES[i] = 0 end
local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
for i = 1, #ALPHABET do VALUES[byte(ALPHABET, i)] = i - 1 end

local function decode(text)
  local n = #text
  local out = ""
  for i = 1, n - 3, 4 do
    local a, b, c, d = byte(text, i, i + 3)
    local bits = bor(lshift(VALUES[a], 18), lshift(VALUES[b], 12), lshift(VALUES[c], 6), VALUES[d])
    out = out .. char(rshift(bits, 16), band(rshift(bits, 8), 255), band(bits, 255))
  end
  if byte(text, n) == 61 then
    if byte(text, n - 1) == 61 then return sub(out, 1, -3) end
    return sub(out, 1, -2)
  end
  return out
end

local EXPECTED = "fooname:validpassword"

local plugin = { version = "v2" }

function plugin:on_request_header()
  local header = envoy.req.get_header("authorization")
  if header and sub(header, 1, 6) == "Basic " and decode(sub(header, 7)) == EXPECTED then return end
  envoy.respond({ [":status"] = "401" }, "wrong user or password")
end

return plugin
