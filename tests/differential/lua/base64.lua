-- base64 both ways
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
  local out = {
    enc = try(handle.base64Escape, handle, "hello\0"), encnum = try(handle.base64Escape, handle, 5), dec = try(handle.base64Decode, handle, "aGVsbG8="),
    nopad = try(handle.base64Decode, handle, "aGVsbG8"), bad = try(handle.base64Decode, handle, "!!"), url = try(handle.base64Decode, handle, "-_8="),
    empty = try(handle.base64Decode, handle, ""), encempty = try(handle.base64Escape, handle, ""), none = try(handle.base64Escape, handle),
    nodec = try(handle.base64Decode, handle), space = try(handle.base64Decode, handle, "aGVs bG8="),
  }
  for k, v in pairs(out) do handle:headers():replace("r-" .. k, v) end
end
