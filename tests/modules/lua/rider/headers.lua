-- Renames the header fields that begin in some way, of requests and of responses.
require("rider.v2")

local plugin = { version = "v2" }

-- `side` is envoy.req or envoy.resp; there is no function that adds a value, so each new field has one.
local function rename(side)
  local config = envoy.get_route_config() or envoy.get_base_config()
  local from, found = config.from, {}
  for name in pairs(side.get_headers()) do
    if name:sub(1, #from) == from then found[#found + 1] = name end
  end
  table.sort(found)
  for _, name in ipairs(found) do
    local value = side.get_header_index(name, 0)
    side.remove_header(name)
    side.set_header(config.to .. name:sub(#from + 1), value)
  end
end

function plugin.on_request_header() rename(envoy.req) end

function plugin.on_response_header() rename(envoy.resp) end

return plugin
