-- dynamic metadata: every type, carried to the response
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
function envoy_on_request(handle)
  local d, h = handle:streamInfo():dynamicMetadata(), handle:headers()
  local g = function(k) return try(function() local v = d:get("ns")[k]; return type(v), type(v) == "table" and #v or v end) end
  local out = {
    set = try(d.set, d, "ns", "s", "text"), num = try(d.set, d, "ns", "n", 1.5), bool = try(d.set, d, "ns", "b", true),
    list = try(d.set, d, "ns", "l", { 1, 2, 3 }), map = try(d.set, d, "ns", "m", { a = { b = 1 } }), isnil = try(d.set, d, "ns", "z", nil),
    fn = try(d.set, d, "ns", "f", function() end), noval = try(d.set, d, "ns", "q"), mixed = try(d.set, d, "ns", "x", { 1, a = 2 }),
    none = try(d.get, d, "nope"), noarg = try(d.get, d), nokey = try(d.set, d, "ns"), empty = try(d.set, d, "ns", "e", {}),
    nested = try(d.set, d, "ns", "nf", { f = function() end }), numkey = try(d.set, d, 5, 6, "v"),
  }
  for _, k in ipairs { "s", "n", "b", "l", "m", "z", "x", "e", "q" } do out["g" .. k] = g(k) end
  local names = {}
  for k, v in pairs(d) do names[#names + 1] = k .. "=" .. type(v) end
  table.sort(names)
  out.names = table.concat(names, ";")
  out.iterset = try(function() for k, v in pairs(d) do d:set("ns", "it", 1) end end)
  out.iterget = try(function() local e = handle:streamInfo():dynamicMetadata(); for k, v in pairs(e) do e:get("ns") end end)
  out.again = try(d.get, d, "ns"):gsub("0x%x+", "PTR")
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
function envoy_on_response(handle)
  handle:headers():add("r-carried", handle:streamInfo():dynamicMetadata():get("ns").s)
end
