-- respond stays possible after the whole body was read
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
  local body = handle:body()
  handle:respond({ [":status"] = "200", ["content-type"] = "a/b" }, "got " .. (body and body:length() or "none"))
end
