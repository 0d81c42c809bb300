-- Asks another cluster whether a request may pass.
--   config: { "cluster": name, "path": "/check", "timeout_ms": 200, "fail_open": false }
-- The service is told method, path and authorization; 200 lets the request pass, with the service's `x-user` added.
require("rider.v2")
local req, respond, httpCall = envoy.req, envoy.respond, envoy.httpCall

require("rider.json_validator").register_validator({
  type = "object",
  properties = {
    cluster = { type = "string", minLength = 1 },
    path = { type = "string", pattern = "^/" },
    timeout_ms = { type = "integer", minimum = 1 },
    fail_open = { type = "boolean" },
  },
  required = { "cluster" },
})

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = envoy.get_base_config()
  local headers, body = httpCall(config.cluster, {
    [":method"] = "GET",
    [":path"] = config.path or "/check",
    [":authority"] = config.cluster,
    ["x-original-method"] = req.get_header(":method"),
    ["x-original-path"] = req.get_header(":path"),
    authorization = req.get_header("authorization"),
  }, nil, config.timeout_ms or 200)
  local status = tonumber(headers[":status"])
  if status == 200 then
    if headers["x-user"] then req.set_header("x-user", headers["x-user"]) end
  elseif status >= 500 and config.fail_open then
    envoy.logWarn("authz is away: " .. status)
  elseif status >= 500 then
    respond({ [":status"] = 503 }, "cannot check at the moment\n")
  else
    respond({ [":status"] = status }, body)
  end
end

return plugin
