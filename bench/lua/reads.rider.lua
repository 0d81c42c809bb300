-- A header read a thousand times: what one read costs.
require("rider.v2")
local envoy = require("envoy")
local plugin = { version = "v2" }

function plugin:on_request_header()
  for _ = 1, 1000 do
    -- Compared, so that no compiler leaves the value out.
    if envoy.req.get_header("authorization") == "" then return end
  end
end

return plugin
