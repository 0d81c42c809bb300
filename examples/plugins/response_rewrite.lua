-- Replaces the bodies of errors by one form, and hides what the upstream says about itself.
require("rider.v2")
local cjson = require("cjson")
local req, resp = envoy.req, envoy.resp

local plugin = { version = "v2" }

function plugin.on_request_header()
  envoy.stream.shared.id = req.get_header("x-request-id")
end

function plugin.on_response_header()
  resp.remove_header("server")
  resp.remove_header("x-powered-by")
end

function plugin.on_response_body()
  local status = tonumber(resp.get_header(":status")) or 200
  if status < 500 then return end
  envoy.logWarn("upstream said: " .. (resp.get_body() or ""):sub(1, 200))
  resp.set_header("content-type", "application/json")
  resp.set_body(cjson.encode({ status = status, request = envoy.stream.shared.id }))
end

return plugin
