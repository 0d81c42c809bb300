-- R5 normal: twenty headers set, ten read, the twenty removed.
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }

function plugin:on_request_header()
  for i = 1, 20 do envoy.req.set_header("test" .. i, "value") end
  for i = 1, 10 do
    local _ = envoy.req.get_header("test" .. i)
  end
  for i = 1, 20 do envoy.req.remove_header("test" .. i) end
end

return plugin
