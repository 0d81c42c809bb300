-- facts about the stream
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
  local s, h = handle:streamInfo(), handle:headers()
  local out = {}
  for _, name in ipairs { "protocol", "routeName", "virtualClusterName", "requestedServerName", "downstreamLocalAddress", "downstreamDirectLocalAddress",
    "downstreamRemoteAddress", "downstreamDirectRemoteAddress", "downstreamSslConnection", "drainConnectionUponCompletion" } do
    out[name:lower()] = try(function() return s[name](s) end):gsub(":%d%d%d%d%d", ":PORT")
  end
  out.typed = try(function() return s:dynamicTypedMetadata("x") end)
  out.ssl = try(function() return handle:connection():ssl() end)
  out.csi = try(function() return handle:connectionStreamInfo():dynamicMetadata():get("x") end)
  out.csiset = try(function() return handle:connectionStreamInfo():dynamicMetadata().set end)
  out.csityped = try(function() return handle:connectionStreamInfo():dynamicTypedMetadata("x") end)
  out.same = tostring(rawequal(s, handle:streamInfo()))
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
