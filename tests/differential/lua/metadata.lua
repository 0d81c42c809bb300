-- the route's metadata
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
  local m, h = handle:metadata(), handle:headers()
  local keys = {}
  for k, v in pairs(m) do keys[#keys + 1] = k .. "=" .. type(v) end
  table.sort(keys)
  local out = {
    s = try(m.get, m, "s"), n = try(m.get, m, "n"), b = try(m.get, m, "b"), none = try(m.get, m, "none"), isnull = try(m.get, m, "z"),
    l = try(function() return m:get("l")[1], #m:get("l") end), o = try(function() return m:get("o").k.d end),
    keys = table.concat(keys, ";"), noarg = try(m.get, m), same = tostring(rawequal(m, handle:metadata())),
    route = try(function() return handle:route():metadata():get("s") end), vh = try(function() return handle:virtualHost():metadata():get("v") end),
    lock = try(function() for k in pairs(m) do local a = pairs(m); return 1 end end),
    ctx = try(function() return handle:filterContext():get("k") end), ctxi = try(function() return handle:filterContext()["k"] end),
    ctxnone = try(function() return handle:filterContext():get("none") end), num = try(m.get, m, 5),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
