-- setUpstreamOverrideHost
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
  local s = function(...) local a, n = { ... }, select("#", ...); return try(function() return handle:setUpstreamOverrideHost(unpack(a, 1, n)) end) end
  local out = { ip = s("127.0.0.1"), port = s("127.0.0.1:1"), name = s("localhost:80"), strictword = s("127.0.0.1:1", "x"), none = s(), six = s("[::1]:80"), six2 = s("::1"), empty = s(""), good = s("127.0.0.1:1", false), clear = try(function() return handle:clearRouteCache() end) }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
