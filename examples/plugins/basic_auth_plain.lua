-- The same as basic_auth.lua with base64 in plain Lua, as scripts often bring it: patterns and closures, which LuaJIT does
-- not compile. It is here to be measured against the other.
require("rider.v2")
local req, respond = envoy.req, envoy.respond

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

-- Each character as six bits, each eight bits as a byte.
local function decode(text)
  local bits = text:gsub("[^%w+/]", ""):gsub(".", function(c)
    local value = ALPHABET:find(c, 1, true) - 1
    local six = ""
    for place = 5, 0, -1 do
      six = six .. (math.floor(value / 2 ^ place) % 2 == 1 and "1" or "0")
    end
    return six
  end)
  return (bits:gsub("%d%d%d?%d?%d?%d?%d?%d?", function(eight)
    if #eight ~= 8 then return "" end
    return string.char(tonumber(eight, 2))
  end))
end

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = envoy.get_route_config() or envoy.get_base_config()
  local value = req.get_header("authorization")
  local encoded = value and value:match("^[Bb]asic (.+)$")
  if encoded and decode(encoded) == config.user .. ":" .. config.password then return end
  respond({ [":status"] = 401, ["www-authenticate"] = 'Basic realm="postrider"' }, "who are you?\n")
end

return plugin
