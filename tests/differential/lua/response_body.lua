-- an error page by setBytes
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
  local before = handle:body():length()
  local n = handle:body():setBytes("<p>sorry</p>")
  handle:headers():replace("r-n", n)
  handle:headers():replace("r-cl", handle:headers():get("content-length"))
  handle:headers():replace("r-had", tostring(before > 0))
end
