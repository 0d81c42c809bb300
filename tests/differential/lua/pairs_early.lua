-- an iterator is dropped by a yield
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
  local h = handle:headers()
  local f = pairs(h)
  f()
  handle:body()
  local h2 = handle:headers()
  local out = { add = try(h2.add, h2, "x", "y"), iter = try(f), old = try(h.get, h, ":method"), same = tostring(rawequal(h, h2)) }
  handle:streamInfo():dynamicMetadata():set("d", "out", out)
end
function envoy_on_response(handle)
  for k, v in pairs(handle:streamInfo():dynamicMetadata():get("d").out) do handle:headers():replace("r-" .. k, v) end
end
