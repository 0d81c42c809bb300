-- Does what its configuration says that plugins must not do; else it marks the request.
require("rider.v2")

local plugin = { version = "v2" }

function plugin.on_request_header()
  local config = envoy.get_route_config() or envoy.get_base_config()
  if config["do"] == "error" then error("on purpose") end
  if config["do"] == "loop" then while true do end end
  if config["do"] == "hoard" then
    local hoard = {}
    while true do hoard[#hoard + 1] = ("x"):rep(65536) .. #hoard end
  end
  envoy.req.set_header("x-done", "yes")
end

return plugin
