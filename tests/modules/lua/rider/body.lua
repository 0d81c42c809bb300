-- Replaces a text wherever it stands in the bodies of requests and responses.
require("rider.v2")

local plugin = { version = "v2" }

local function rewrite(side)
  local config = envoy.get_route_config() or envoy.get_base_config()
  local body = side.get_body()
  if not body then return end
  local parts, from = {}, 1
  while true do
    local first, last = body:find(config.find, from, true)
    if not first then break end
    parts[#parts + 1] = body:sub(from, first - 1)
    parts[#parts + 1] = config.replace
    from = last + 1
  end
  parts[#parts + 1] = body:sub(from)
  side.set_body(table.concat(parts))
end

function plugin.on_request_body() rewrite(envoy.req) end

function plugin.on_response_body() rewrite(envoy.resp) end

return plugin
