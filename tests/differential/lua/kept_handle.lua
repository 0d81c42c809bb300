-- what the request's function kept, in the response's
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
local kept
function envoy_on_request(handle)
  kept = { handle = handle, counter = handle:stats():counter("kept"), gauge = handle:stats():gauge("keptg") }
  kept.headers, kept.info, kept.stats = handle:headers(), handle:streamInfo(), handle:stats()
end
function envoy_on_response(handle)
  local h = handle:headers()
  h:replace("r-handle", try(kept.handle.headers, kept.handle))
  h:replace("r-log", try(kept.handle.logTrace, kept.handle, "x"))
  h:replace("r-b64", try(kept.handle.base64Escape, kept.handle, "x"))
  h:replace("r-counter", try(kept.counter.inc, kept.counter))
  h:replace("r-gauge", try(kept.gauge.set, kept.gauge, 1))
  h:replace("r-headers", try(kept.headers.get, kept.headers, ":path"))
  h:replace("r-info", try(kept.info.protocol, kept.info))
  h:replace("r-stats", try(kept.stats.counter, kept.stats, "x"))
end
