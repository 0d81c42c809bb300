-- objects do not outlive their stream
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
  if not kept then
    kept = { handle = handle, headers = handle:headers(), info = handle:streamInfo(), meta = handle:metadata(), dyn = handle:streamInfo():dynamicMetadata(), body = handle:body(true), stats = handle:stats() }
    handle:headers():replace("r-first", "1")
    return
  end
  local out = {}
  out.handle = try(kept.handle.headers, kept.handle); out.headers = try(kept.headers.get, kept.headers, ":method"); out.pairs = try(pairs, kept.headers)
  out.info = try(kept.info.protocol, kept.info); out.meta = try(kept.meta.get, kept.meta, "s"); out.dyn = try(kept.dyn.get, kept.dyn, "s")
  out.body = try(kept.body.length, kept.body); out.log = try(kept.handle.logTrace, kept.handle, "x"); out.b64 = try(kept.handle.base64Escape, kept.handle, "x")
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
