-- R5: the body read a hundred times, by a function in C.
require("rider.v2")
local capi = require("capi")
local plugin = { version = "v2" }

function plugin:on_request_body()
  for _ = 1, 100 do
    local _ = capi.get_body()
  end
end

return plugin
