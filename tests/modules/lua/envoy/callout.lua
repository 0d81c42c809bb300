-- Asks a service about each request: what it answers with 200 goes on, everything else is denied.

-- For the service's answer.
local TIMEOUT_MILLISECONDS = 5000

function envoy_on_request(handle)
  local config = handle:filterContext()
  local cluster, path = config:get("cluster"), config:get("path")
  local headers, body = handle:httpCall(cluster, {
    [":method"] = "GET",
    [":path"] = path,
    [":authority"] = cluster,
    ["x-original-path"] = handle:headers():get(":path"),
  }, "", TIMEOUT_MILLISECONDS)
  local status = headers[":status"]
  if status ~= "200" then
    handle:respond({ [":status"] = "403", ["content-type"] = "text/plain" }, "denied by " .. status .. "\n")
  end
  if body and #body > 0 then handle:headers():replace("x-callout", body) end
end
