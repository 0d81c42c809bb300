-- wrappers die at a yield; the handle lives
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
  local h, i, m, d, s, c = handle:headers(), handle:streamInfo(), handle:metadata(), handle:streamInfo():dynamicMetadata(), handle:stats(), handle:connection()
  local counter, fs, r, fc = s:counter("x"), i:filterState(), handle:route(), handle:filterContext()
  local b = handle:body()
  local out = {
    h = try(h.get, h, ":method"), i = try(i.protocol, i), m = try(m.get, m, "s"), d = try(d.get, d, "s"), handle = try(handle.base64Escape, handle, "x"),
    s = try(s.counter, s, "y"):gsub("0x%x+", "PTR"), counter = try(counter.inc, counter), c = try(c.ssl, c), fs = try(fs.get, fs, "x"), r = try(function() return type(r:metadata()) end), fc = try(fc.get, fc, "k"),
    b = try(b.length, b),
  }
  handle:httpCall("origin", { [":method"] = "GET", [":path"] = "/", [":authority"] = "a" }, nil, 1000)
  out.b2 = try(b.length, b)
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
function envoy_on_response(handle) handle:headers():add("r-side", "ok") end
