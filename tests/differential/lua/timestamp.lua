-- clocks
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
  local kind = function(f, ...) return try(function(...) local v = f(handle, ...); return type(v), v and #tostring(v):gsub("%.%d+", "") end, ...) end
  local out = {
    ms = kind(handle.timestamp, EnvoyTimestampResolution.MILLISECOND), default = kind(handle.timestamp), us = kind(handle.timestamp, EnvoyTimestampResolution.MICROSECOND),
    sms = kind(handle.timestampString, EnvoyTimestampResolution.MILLISECOND), sus = kind(handle.timestampString, EnvoyTimestampResolution.MICROSECOND), sdef = kind(handle.timestampString),
    bad = try(handle.timestamp, handle, 5), sbad = try(handle.timestampString, handle, 5), word = try(handle.timestamp, handle, "x"), enum = EnvoyTimestampResolution.MILLISECOND .. EnvoyTimestampResolution.MICROSECOND,
    plain = tostring(handle:timestamp()):gsub("%d", "9"), sus9 = try(function() return (handle:timestampString(EnvoyTimestampResolution.MICROSECOND):gsub("%d", "9")) end), sms9 = try(function() return (handle:timestampString():gsub("%d", "9")) end),
    swordx = try(handle.timestampString, handle, "x"),
  }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, tostring(v)) end
end
