-- R5 complex: normal, and the body read thirty times.
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }

function plugin:on_request_body()
  for i = 1, 20 do envoy.req.set_header("test" .. i, "value") end
  for i = 1, 10 do
    local _ = envoy.req.get_header("test" .. i)
  end
  for i = 1, 20 do envoy.req.remove_header("test" .. i) end
  for _ = 1, 30 do
    local _ = envoy.req.get_body()
  end
end

return plugin
