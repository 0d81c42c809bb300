-- what a request does not have
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
  local out = {
    reason = try(h.setHttp1ReasonPhrase, h, "Fine"),
    q = try(function() return type((handle.requestHeaders or handle.downstreamRequestHeaders)(handle)) end),
    qadd = try(function() handle:requestHeaders():add("x-q", "1") return handle:headers():get("x-q") end),
    q2 = try(function() return handle:requestHeaders():get(":path") end),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
