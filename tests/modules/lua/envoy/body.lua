-- Replaces a text wherever it stands in the bodies of requests and responses.
local function rewrite(handle)
  local config = handle:filterContext()
  local find, replace = config:get("find"), config:get("replace")
  local body = handle:body()
  if not body then return end
  local text, parts, from = body:getBytes(0, body:length()), {}, 1
  while true do
    local first, last = text:find(find, from, true)
    if not first then break end
    parts[#parts + 1] = text:sub(from, first - 1)
    parts[#parts + 1] = replace
    from = last + 1
  end
  parts[#parts + 1] = text:sub(from)
  body:setBytes(table.concat(parts))
end

function envoy_on_request(handle) rewrite(handle) end

function envoy_on_response(handle) rewrite(handle) end
