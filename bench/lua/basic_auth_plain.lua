-- Basic authentication with a decoder as one writes it for plain Lua: patterns, closures and a string of bits.
local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function decode(text)
  text = text:gsub("[^" .. ALPHABET .. "=]", "")
  local bits = text:gsub(".", function(letter)
    if letter == "=" then return "" end
    local value, digits = ALPHABET:find(letter, 1, true) - 1, ""
    for i = 6, 1, -1 do
      digits = digits .. (value % 2 ^ i - value % 2 ^ (i - 1) > 0 and "1" or "0")
    end
    return digits
  end)
  return (bits:gsub("%d%d%d?%d?%d?%d?%d?%d?", function(digits)
    if #digits ~= 8 then return "" end
    return string.char(tonumber(digits, 2))
  end))
end

local EXPECTED = "fooname:validpassword"

function envoy_on_request(handle)
  local header = handle:headers():get("authorization")
  local encoded = header and header:match("^Basic (.+)$")
  if encoded and decode(encoded) == EXPECTED then return end
  handle:respond({ [":status"] = "401" }, "wrong user or password")
end
