-- NAME: greets upstreams, and says on every answer that it was here.
require("rider.v2")

local plugin = { version = "v2" }

-- The route's configuration counts before the gateway's.
local function greeting()
  local config = envoy.get_route_config() or envoy.get_base_config()
  return config.greeting or "hello"
end

function plugin:on_request_header()
  if envoy.req.get_header("x-refuse") then
    envoy.respond({ [":status"] = 403 }, "refused by NAME\n")
  end
  envoy.req.set_header("x-greeting", greeting())
end

function plugin:on_response_header()
  envoy.resp.set_header("x-plugin", "NAME")
end

return plugin
