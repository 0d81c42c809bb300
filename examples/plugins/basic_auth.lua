-- Basic authentication: a user and a password from the route's configuration, or from the gateway's.
--   config: { "user": "fooname", "password": "validpassword" }
-- base64 is decoded by the proxy, so all of this is compiled.
require("rider.v2")
local base64 = require("base64")
local req, respond = envoy.req, envoy.respond
local sub, byte, lower = string.sub, string.byte, string.lower
local get_header, get_route_config, get_base_config = req.get_header, envoy.get_route_config, envoy.get_base_config

local schema = {
  type = "object",
  properties = { user = { type = "string" }, password = { type = "string" } },
}
require("rider.json_validator").register_validator(schema, schema)

local DENIED = { [":status"] = 401, ["www-authenticate"] = 'Basic realm="postrider"' }

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = get_route_config() or get_base_config()
  local value = get_header("authorization")
  if value and byte(value, 6) == 32 and lower(sub(value, 1, 5)) == "basic" then
    local given = base64.decode(sub(value, 7))
    if given == config.user .. ":" .. config.password then return end
  end
  respond(DENIED, "who are you?\n")
end

return plugin
