-- an ECDSA key, and one that is none
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
local EC_KEY = hex("3059301306072a8648ce3d020106082a8648ce3d03010703420004786868123ea12513617c02accc05a302def12249b659b784f1d3b4cc45828e331845ca37d63bbb6886895fb3290f32e8f9659d35cfe72627bf5be72ea1dbfded")
local EC_SIG = hex("30450221009a6ae36e5b8a4aa4d81cf790e566ada6b65b26abc4ee8ddd15412a47b22b66ad02203a664d8d6d53c2b0e6618c95f30875a8b9f53b40f2865bb28447e8a3814c29c5")
function envoy_on_request(handle)
  local v = function(...) return try(handle.verifySignature, handle, ...) end
  local ec = handle:importPublicKey(EC_KEY, #EC_KEY)
  local out = { ec = v("sha256", ec:get(), EC_SIG, #EC_SIG, DATA, #DATA), other = v("sha256", ec:get(), EC_SIG, #EC_SIG, "other", 5) }
  for k, w in pairs(out) do handle:headers():replace("r-" .. k, w) end
end
