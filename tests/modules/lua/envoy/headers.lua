-- Renames the header fields that begin in some way, of requests and of responses.
local function rename(handle)
  local config = handle:filterContext()
  local from, to = config:get("from"), config:get("to")
  local headers, found = handle:headers(), {}
  for name, value in pairs(headers) do
    if name:sub(1, #from) == from then found[#found + 1] = { name, value } end
  end
  for _, field in ipairs(found) do headers:remove(field[1]) end
  for _, field in ipairs(found) do headers:add(to .. field[1]:sub(#from + 1), field[2]) end
end

function envoy_on_request(handle) rename(handle) end

function envoy_on_response(handle) rename(handle) end
