-- Both hooks, nothing in them.
require("rider.v2")
local plugin = { version = "v2" }
function plugin:on_request_header() end
function plugin:on_response_header() end
return plugin
