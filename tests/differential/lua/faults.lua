-- an error keeps the edits; the response's function still runs
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
  handle:headers():replace("r-before", "1")
  error({ code = 5 })
end
function envoy_on_response(handle) handle:headers():add("r-response", "ran") error("text") end
