-- get joins values; a missing field has no result; names and values by type
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
    many = try(h.get, h, "x-multi"), missing = try(h.get, h, "nope"), upper = try(h.get, h, "X-MULTI"),
    empty = try(h.get, h, "x-empty"), noname = try(h.get, h, ""), method = try(h.get, h, ":method"),
    host = try(h.get, h, "host"), authority = try(h.get, h, ":authority"), scheme = try(h.get, h, ":scheme"),
    number = try(h.get, h, 5), none = try(h.get, h), isnil = try(h.get, h, nil), table = try(h.get, h, {}),
    tostring = try(function() return tostring(h:get("nope")) end),
    dot = try(function() return h.get("x-multi") end),
  }
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
end
