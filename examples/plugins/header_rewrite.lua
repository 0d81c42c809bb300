-- Sets and removes headers as each route says, and tells the client how long the upstream took.
--   route config: { "set": { name: value }, "remove": [name], "response_set": { name: value } }
-- `$name` in a value stands for the request's header of that name.
require("rider.v2")
local req, resp = envoy.req, envoy.resp

local names = { type = "object", additionalProperties = { type = "string", minLength = 1 } }
require("rider.json_validator").register_validator(nil, {
  type = "object",
  properties = {
    set = names,
    remove = { type = "array", items = { type = "string", minLength = 1 } },
    response_set = names,
  },
  additionalProperties = false,
})

local function expand(value)
  return (value:gsub("%$([%w-]+)", function(name) return req.get_header(name) or "" end))
end

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = envoy.get_route_config()
  if not config then return end
  for name, value in pairs(config.set or {}) do
    local expanded = expand(value)
    if expanded ~= "" then req.set_header(name, expanded) end
  end
  for _, name in ipairs(config.remove or {}) do req.remove_header(name) end
  envoy.stream.shared.began = envoy.nowms()
end

function plugin.on_response_header()
  local config = envoy.get_route_config()
  for name, value in pairs(config.response_set or {}) do resp.set_header(name, value) end
  local began = envoy.stream.shared.began
  if began then resp.set_header("x-took-ms", tostring(envoy.nowms() - began)) end
end

return plugin
