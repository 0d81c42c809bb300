-- NAME: greets upstreams, and says on every answer that it was here.

function envoy_on_request(handle)
  local headers = handle:headers()
  if headers:get("x-refuse") then
    handle:respond({ [":status"] = "403" }, "refused by NAME\n")
  end
  headers:replace("x-greeting", handle:filterContext():get("greeting") or "hello")
end

function envoy_on_response(handle)
  handle:headers():replace("x-plugin", "NAME")
end
