-- R5 simple: ten headers read.
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }

function plugin:on_request_header()
  for i = 1, 10 do
    local _ = envoy.req.get_header("test" .. i)
  end
end

return plugin
