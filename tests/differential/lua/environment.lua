-- what Lua itself offers
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
count = (count or 0) + 1
function envoy_on_request(handle)
  requests = (requests or 0) + 1
  local out = {
    loaded = tostring(count), n = tostring(requests), getfenv = type(getfenv), setfenv = type(setfenv), unpack = type(unpack), loadstring = type(loadstring), pack = type(table.pack),
    rawlen = type(rawlen), os = type(os.getenv), io = type(io.open), ffi = type((function() local ok, f = pcall(require, "ffi"); return ok and f end)()), jit = type(jit), debug = type(debug), bit = type(bit), version = _VERSION,
    where = try(function() error("here") end), print = try(print, "x"), mainthread = tostring(select(2, coroutine.running())), file = debug.getinfo(1, "S").short_src,
    wrapped = try(function() local r = {}; for k in coroutine.wrap(function() coroutine.yield(1); coroutine.yield(2) end) do r[#r + 1] = k end; return unpack(r) end),
    path = type(package.path),
  }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
