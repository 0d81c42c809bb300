-- Lets one user in, who is known by name and password.
function envoy_on_request(handle)
  local config = handle:filterContext()
  local username, password = config:get("username"), config:get("password")
  local known = "Basic " .. handle:base64Escape(username .. ":" .. password)
  if handle:headers():get("authorization") ~= known then
    handle:respond({
      [":status"] = "401",
      ["content-type"] = "text/plain",
      ["www-authenticate"] = 'Basic realm="postrider"',
    }, "unauthorized\n")
  end
  handle:headers():replace("x-auth-user", username)
end
