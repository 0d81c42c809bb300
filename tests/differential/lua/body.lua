-- the buffer's methods and their limits
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
  local b, out = handle:body(), {}
  out.type = type(b) .. " " .. tostring(b):gsub("0x%x+", "PTR")
  out.length = try(b.length, b); out.all = try(b.getBytes, b, 0, b:length()); out.some = try(b.getBytes, b, 1, 2)
  out.over = try(b.getBytes, b, 1, b:length()); out.zero = try(b.getBytes, b, b:length(), 0); out.minus = try(b.getBytes, b, -1, 2)
  out.nolen = try(b.getBytes, b, 0); out.minuslen = try(b.getBytes, b, 0, -1); out.float = try(b.getBytes, b, 0.9, 1.9)
  out.same = tostring(rawequal(b, handle:body()))
  out.badset = try(b.setBytes, b); out.setnil = try(b.setBytes, b, nil)
  out.set = try(b.setBytes, b, "hello you"); out.after = try(b.getBytes, b, 0, b:length()); out.cl = try(handle:headers().get, handle:headers(), "content-length")
  out.num = try(b.setBytes, b, 12); out.twice = try(function() return handle:body():length() end)
  out.old = try(b.length, b)
  out.chunks = try(function() handle:bodyChunks() end)
  out.trailers = try(function() return handle:trailers() end)
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
