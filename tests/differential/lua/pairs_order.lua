-- the order of pairs; an iterator used behind its end
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
  local h, names = handle:headers(), {}
  h:add("x-multi", "c")
  for k, v in pairs(h) do names[#names + 1] = k .. "=" .. v end
  h:replace("r-names", table.concat(names, ";"))
  local f, s, c = pairs(h)
  h2 = try(function() return type(f), type(s), type(c) end)
  for k in f, s, c do end
  h:replace("r-types", h2)
  h:replace("r-again", try(f))
  h:replace("r-len", try(function() return #h end))
end
