-- Both hooks, nothing in them.
function envoy_on_request(handle) end
function envoy_on_response(handle) end
