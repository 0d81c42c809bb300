-- Asks a service about each request: what it answers with 200 goes on, everything else is denied.
require("rider.v2")

local plugin = { version = "v2" }

-- For the service's answer.
local TIMEOUT_MILLISECONDS = 5000

function plugin.on_request_header()
  local config = envoy.get_route_config() or envoy.get_base_config()
  local headers, body = envoy.httpCall(config.cluster, {
    [":method"] = "GET",
    [":path"] = config.path,
    [":authority"] = config.cluster,
    ["x-original-path"] = envoy.req.get_header(":path"),
  }, "", TIMEOUT_MILLISECONDS)
  local status = headers[":status"]
  if status ~= "200" then
    envoy.respond({ [":status"] = "403", ["content-type"] = "text/plain" }, "denied by " .. status .. "\n")
  end
  if body and #body > 0 then envoy.req.set_header("x-callout", body) end
end

return plugin
