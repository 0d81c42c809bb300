-- body() and body(true) of a request without one; bodyChunks and trailers of it
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
  local out = {}
  local body = function(...) return select("#", ...), type((...)) end
  out.none = try(function() return body(handle:body()) end)
  out.wrap = try(function() local b = handle:body(true); return type(b), b:length(), b:getBytes(0, 0) end)
  out.set = try(function() return handle:body(true):setBytes("new") end)
  out.again = try(function() return handle:body():length() end)
  out.chunks = try(function() local n = 0; for c in handle:bodyChunks() do n = n + 1 end; return n end)
  out.trailers = try(function() return handle:trailers() end)
  out.bodyafter = try(function() return handle:body() end)
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
