-- filter state
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
  local f, h = handle:streamInfo():filterState(), handle:headers()
  local out = {
    none = try(f.get, f, "nope"), set = try(function() return f:set("k", "envoy.string", "v") end), get = try(function() return f:get("k") end),
    badfactory = try(function() return f:set("k2", "nope", "v") end), field = try(function() return f:get("k", "x") end),
    again = try(function() return f:set("k", "envoy.string", "w") end), get2 = try(function() return f:get("k") end),
    noarg = try(function() return f:get() end), few = try(function() return f:set("a", "envoy.string") end),
    num = try(function() return f:set("n", "envoy.string", 5) end), getn = try(function() return f:get("n") end),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
