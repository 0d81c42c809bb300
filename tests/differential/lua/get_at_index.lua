-- getAtIndex counts from 0; getNumValues
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
    i0 = try(h.getAtIndex, h, "x-multi", 0), i1 = try(h.getAtIndex, h, "x-multi", 1), i2 = try(h.getAtIndex, h, "x-multi", 2),
    minus = try(h.getAtIndex, h, "x-multi", -1), half = try(h.getAtIndex, h, "x-multi", 0.9),
    text = try(h.getAtIndex, h, "x-multi", "1"), word = try(h.getAtIndex, h, "x-multi", "a"), noindex = try(h.getAtIndex, h, "x-multi"),
    missing = try(h.getAtIndex, h, "nope", 0), n = try(h.getNumValues, h, "x-multi"), n0 = try(h.getNumValues, h, "nope"),
    nm = try(h.getNumValues, h, ":method"),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
