-- Lets one user in, who is known by name and password.
require("rider.v2")
local base64 = require("base64")

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = envoy.get_route_config() or envoy.get_base_config()
  local known = "Basic " .. base64.encode(config.username .. ":" .. config.password)
  if envoy.req.get_header("authorization") ~= known then
    envoy.respond({
      [":status"] = "401",
      ["content-type"] = "text/plain",
      ["www-authenticate"] = 'Basic realm="postrider"',
    }, "unauthorized\n")
  end
  envoy.req.set_header("x-auth-user", config.username)
end

return plugin
