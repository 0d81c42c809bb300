-- Basic authentication with a decoder that a tracing compiler likes: tables and bit operations, no patterns.
local byte, char, sub = string.byte, string.char, string.sub

local VALUES = {}
for i = 0, 255 do VALUES[i] = 0 end
local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
for i = 1, #ALPHABET do VALUES[byte(ALPHABET, i)] = i - 1 end

local function decode(text)
  local n = #text
  local out = ""
  for i = 1, n - 3, 4 do
    local a, b, c, d = byte(text, i, i + 3)
    local bits = VALUES[a] << 18 | VALUES[b] << 12 | VALUES[c] << 6 | VALUES[d]
    out = out .. char(bits >> 16, bits >> 8 & 255, bits & 255)
  end
  if byte(text, n) == 61 then
    if byte(text, n - 1) == 61 then return sub(out, 1, -3) end
    return sub(out, 1, -2)
  end
  return out
end

local EXPECTED = "fooname:validpassword"

core.register_action("bench_request", { "http-req" }, function(txn)
  local header = txn.sf:req_hdr("authorization")
  if header and sub(header, 1, 6) == "Basic " and decode(sub(header, 7)) == EXPECTED then return end
  local reply = txn:reply()
  reply:set_status(401)
  reply:set_body("wrong user or password")
  txn:done(reply)
end)
