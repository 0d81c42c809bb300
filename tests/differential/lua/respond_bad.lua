-- what respond refuses
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
  local r = function(...) local a, n = { ... }, select("#", ...); return try(function() handle:respond(unpack(a, 1, n)) end) end
  local out = {
    low = r({ [":status"] = "199" }), high = r({ [":status"] = "600" }), none = r({}), word = r({ [":status"] = "abc" }),
    notable = r("200"), noargs = r(), bodytable = r({ [":status"] = "200" }, {}), hundred = r({ [":status"] = 100 }),
    badvalue = r({ [":status"] = "200", x = function() end }), boolvalue = r({ [":status"] = "200", x = true }),
    key = r({ [":status"] = "200", [5] = {} }), trailing = r({ [":status"] = "200x" }), arr = r({ [":status"] = { "200", "201" } , y = { {} } }),
  }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
