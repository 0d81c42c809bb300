-- what a call sends and answers
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
  local get = { [":method"] = "POST", [":path"] = "/echo", [":authority"] = "a", ["x-list"] = { "1", "2" }, ["x-num"] = 7 }
  local h, b = handle:httpCall("origin", get, "abc", 1000)
  handle:headers():replace("r-sent", (b:gsub("%c", "|")))
  local h, b = handle:httpCall("origin", get, "abc", { timeout_ms = 1000, send_xff = false, return_duplicate_headers = true })
  handle:headers():replace("r-sent2", (b:gsub("%c", "|")))
  local names = {}
  for k, v in pairs(h) do names[#names + 1] = k .. "=" .. (type(v) == "table" and "[" .. table.concat(v, ",") .. "]" or v) end
  table.sort(names)
  handle:headers():replace("r-dup", table.concat(names, ";"))
  local h, b = handle:httpCall("origin", get, "abc", 1000)
  handle:headers():replace("r-last", tostring(h["x-dup"]) .. " " .. type(h[":status"]))
  local h, b = handle:httpCall("down", get, "abc", 1000)
  handle:headers():replace("r-down", h[":status"] .. " " .. b)
  local names = {}
  for k, v in pairs(h) do names[#names + 1] = k .. "=" .. v end
  table.sort(names)
  handle:headers():replace("r-downh", table.concat(names, ";"))
end
