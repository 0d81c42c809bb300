-- types, text forms and metatables of objects
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
  local h = handle:headers()
  local out = {
    handle = type(handle), headers = type(h), text = tostring(h):gsub("0x%x+", "PTR"), meta = type(getmetatable(handle)),
    index = type(getmetatable(h).__index), unknown = try(function() return handle.nope end), call = try(function() handle:nope() end),
    set = try(function() handle.x = 1 end), same = tostring(rawequal(handle:headers(), h)), self = try(handle.headers),
    selfwrong = try(handle.headers, h), ctx = type(handle:filterContext()), log = try(handle.logTrace, handle, 5),
    lognil = try(handle.logTrace, handle, nil), logh = try(h.logTrace, h, "x"), lognone = try(handle.logTrace, handle),
    bytes = tostring(handle:streamInfo()):gsub("0x%x+", "PTR"),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, (tostring(v):gsub("%c", "|"))) end
end
