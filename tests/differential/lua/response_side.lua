-- what a response shows and takes
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
function envoy_on_response(handle)
  local h = handle:headers()
  local q = handle.requestHeaders and handle:requestHeaders() or handle:downstreamRequestHeaders()
  local out = {
    status = try(h.get, h, ":status"), path = try(q.get, q, ":path"), qadd = try(q.add, q, "x", "y"), qrem = try(q.remove, q, "x"), qrep = try(q.replace, q, "x", "y"),
    qpairs = try(function() local n = 0; for k, v in pairs(q) do n = n + 1 end; return n > 3 end),
    qafter = try(q.get, q, "x"),
    respond = try(function() handle:respond({ [":status"] = "500" }, "x") end),
    reason = try(h.setHttp1ReasonPhrase, h, "Fine"), noreason = try(h.setHttp1ReasonPhrase, h),
    qreason = try(q.setHttp1ReasonPhrase, q, "x"),
    newstatus = try(h.replace, h, ":status", 201), clear = try(function() handle:clearRouteCache() end),
    host = try(function() handle:setUpstreamOverrideHost("1.2.3.4:80") end),
    badstatus = try(h.replace, h, "x-status", "abc"),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
