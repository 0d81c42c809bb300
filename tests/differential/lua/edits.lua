-- add, replace, remove: results, numbers, wrong types, odd names
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
    add = try(h.add, h, "x-a", "1"), add2 = try(h.add, h, "x-a", 2), addfloat = try(h.add, h, "x-a", 1.5),
    replace = try(h.replace, h, "x-multi", "one"), remove = try(h.remove, h, "x-empty"), removenone = try(h.remove, h, "nope"),
    addnil = try(h.add, h, "x-n", nil), addbool = try(h.add, h, "x-n", true), addtable = try(h.add, h, "x-n", {}),
    repnil = try(h.replace, h, "x-n", nil), repnoname = try(h.replace, h, nil, "v"), remnil = try(h.remove, h, nil),
    empty = try(h.add, h, "", "v"), emptyval = try(h.replace, h, "x-e", ""), upper = try(h.add, h, "X-Upper", "v"),
    path = try(h.replace, h, ":path", "/edits/changed"), delpath = try(h.remove, h, "x-none"),
    status = try(h.replace, h, ":status", "200"), remhost = try(h.remove, h, "nohost"),
  }
  out.a = try(h.get, h, "x-a"); out.multi = try(h.get, h, "x-multi"); out.e = try(h.get, h, "x-e"); out.u = try(h.get, h, "x-upper")
  for k, v in pairs(out) do h:replace("r-" .. k, v) end
  h:remove(":status")
  h:remove("status")
end
