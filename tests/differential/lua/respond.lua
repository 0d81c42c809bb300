-- an answer with arrays, without a content type; the response's function sees it
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
  handle:respond({ [":status"] = 403, ["x-list"] = { "a", "b" }, ["X-Upper"] = "u", ["x-num"] = 5 }, "denied")
  handle:headers():add("unreachable", "1")
end
function envoy_on_response(handle)
  handle:headers():add("r-seen", handle:headers():get(":status"))
  handle:headers():add("r-type", handle:headers():get("content-type"))
  handle:headers():add("r-respond", try(function() handle:respond({ [":status"] = "500" }, "x") end))
  handle:headers():add("r-length", try(handle:headers().get, handle:headers(), "content-length"))
end
