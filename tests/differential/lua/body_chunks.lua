-- after chunks the headers are gone, and the body, too
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
  local out, n, text = {}, 0, ""
  local h = handle:headers()
  for chunk in handle:bodyChunks() do
    n = n + 1
    text = text .. chunk:getBytes(0, chunk:length())
    out.set = try(chunk.setBytes, chunk, ("x"):rep(chunk:length()))
  end
  out.n, out.text = n, text
  out.body = try(function() return handle:body() end)
  out.again = try(function() handle:bodyChunks() end)
  out.trailers = try(function() return handle:trailers() end)
  out.old = try(h.get, h, ":method")
  local h2 = handle:headers()
  out.get = try(h2.get, h2, ":method"); out.add = try(h2.add, h2, "x", "y"); out.remove = try(h2.remove, h2, "x")
  out.replace = try(h2.replace, h2, "x", "y")
  out.respond = try(function() handle:respond({ [":status"] = "200" }, "no") end)
  handle:streamInfo():dynamicMetadata():set("d", "out", out)
end
function envoy_on_response(handle)
  local out = handle:streamInfo():dynamicMetadata():get("d").out
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, tostring(v)) end
end
