-- counters, gauges and histograms of a script's own
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
  local s = handle:stats()
  local c, g, t = s:counter("c.one"), s:gauge("g"), s:histogram("t", "ms")
  local out = {
    inc = try(c.inc, c), add = try(c.add, c, 2), value = try(c.value, c), minus = try(c.add, c, -1), addnone = try(c.add, c), addfloat = try(c.add, c, 1.7), value2 = try(c.value, c),
    ginc = try(g.inc, g), gadd = try(g.add, g, 5), gsub = try(g.sub, g, 2), gdec = try(g.dec, g), gvalue = try(g.value, g), gset = try(g.set, g, 40), gvalue2 = try(g.value, g),
    gminus = try(g.add, g, -1), gsubminus = try(g.sub, g, -1), gsetminus = try(g.set, g, -1), gunder = try(g.sub, g, 100), gvalue3 = try(g.value, g),
    record = try(t.recordValue, t, 12), recminus = try(t.recordValue, t, -1), unit = try(s.histogram, s, "u", "nope"), nounit = try(function() return type(s:histogram("nu")) end),
    us = try(function() return type(s:histogram("us", "microseconds")) end), by = try(function() return type(s:histogram("by", "bytes")) end), un = try(function() return type(s:histogram("un", "unspecified")) end),
    noname = try(s.counter, s), emptyname = try(function() return type(s:counter("")) end), same = tostring(rawequal(s, handle:stats())), word = try(c.add, c, "x"), recword = try(t.recordValue, t, "x"),
  }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
