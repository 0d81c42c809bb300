-- Basic authentication with a base64 decoder in Lua that LuaJIT compiles: bytes and a table, no patterns, no closures. For
-- hosts without a base64 module; with Postrider basic_auth.lua is shorter and faster.
require("rider.v2")
local ffi, bit = require("ffi"), require("bit")
local req, respond = envoy.req, envoy.respond
local bor, lshift, rshift, band = bit.bor, bit.lshift, bit.rshift, bit.band

local VALUES = ffi.new("uint8_t[256]")
ffi.fill(VALUES, 256, 64)
local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
for i = 1, #ALPHABET do VALUES[ALPHABET:byte(i)] = i - 1 end

-- Longer credentials are refused.
local LONGEST = 1024
local room = ffi.new("uint8_t[?]", LONGEST)

-- From the character at `at`, counted from 1; nil for what is no base64.
local function decode(text, at)
  if #text - at >= LONGEST then return nil end
  local held, bits, size = 0, 0, 0
  for i = at, #text do
    local value = VALUES[text:byte(i)]
    if value == 64 then
      if text:byte(i) ~= 61 then return nil end
    else
      held = band(bor(lshift(held, 6), value), 0xffff)
      bits = bits + 6
      if bits >= 8 then
        bits = bits - 8
        room[size] = band(rshift(held, bits), 255)
        size = size + 1
      end
    end
  end
  return ffi.string(room, size)
end

local plugin = { version = "v2" }
local DENIED = { [":status"] = 401, ["www-authenticate"] = 'Basic realm="postrider"' }

function plugin.on_request_header()
  local config = envoy.get_route_config() or envoy.get_base_config()
  local value = req.get_header("authorization")
  if value and value:sub(1, 6):lower() == "basic " and decode(value, 7) == config.user .. ":" .. config.password then
    return
  end
  respond(DENIED, "who are you?\n")
end

return plugin
