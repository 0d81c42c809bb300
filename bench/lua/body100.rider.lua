-- R5: the body read a hundred times.
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }

function plugin:on_request_body()
  for _ = 1, 100 do
    local _ = envoy.req.get_body()
  end
end

return plugin
