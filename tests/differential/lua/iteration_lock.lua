-- an open iterator locks the map, and stays open after a break
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
  local h, out = handle:headers(), {}
  for k, v in pairs(h) do
    out.add = try(h.add, h, "x", "1"); out.replace = try(h.replace, h, "x", "1"); out.remove = try(h.remove, h, "x")
    out.second = try(pairs, h); out.get = try(h.get, h, ":method"); out.num = try(h.getNumValues, h, ":method")
    out.reason = try(h.setHttp1ReasonPhrase, h, "x")
    out.copy = try(function() local h2 = handle:headers(); return rawequal(h, h2) end)
    break
  end
  out.after = try(h.add, h, "x", "1")
  out.other = try(function() local h2 = handle:headers(); h2:add("x", "1") end)
  handle:streamInfo():dynamicMetadata():set("d", "out", out)
end
function envoy_on_response(handle)
  local h = handle:headers()
  for k, v in pairs(handle:streamInfo():dynamicMetadata():get("d").out) do h:replace("r-" .. k, v) end
end
