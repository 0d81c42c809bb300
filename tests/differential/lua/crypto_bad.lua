-- a key that is none
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
local function hex(text) return (text:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)) end
local DATA = "hello"
local SIG = hex("8d07c882acf8f81c392e1f2e9f0df2c4c2630bb74f0f5fe66135592b3b6529f3ae5c415f06277bf023cafd6fb78c420774036519c8c9cb00d9e46d72ecd1eba02e22af587d5ec5e3f8697e9674437f1dd3fad28f6476ce14aee922fcc948306affe00893fabf06fb9fc366e9af6851c76cda36a3fa2bfced3aa908020531fc3d5d16a3d8f72f91532bb0cfef72030215bd2d6ea818a076bd6036d476dd12e0d6dfb7f51d511c5df88e3256ee69f34e5f63e3331ea2e1c6f60c87b0ead5b7be15bfa725102ef30be6ffdabf9c1ab81486a83c860783053c92c6b6ea8527620eb76540073c14a255d799f82fadaaa84830188fbab78fadb63f1c56a6bd2144368c")
function envoy_on_request(handle)
  local v = function(...) return try(handle.verifySignature, handle, ...) end
  local bad = handle:importPublicKey("junk", 4)
  local out = { type = type(bad), get = try(bad.get, bad), verify = v("sha256", bad:get(), SIG, #SIG, DATA, #DATA), text = v("sha256", "junk", SIG, #SIG, DATA, #DATA), other = v("sha256", "unknown", SIG, #SIG, DATA, #DATA) }
  for k, w in pairs(out) do handle:headers():replace("r-" .. k, w) end
end
