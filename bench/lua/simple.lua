-- R5 simple: ten headers read.
function envoy_on_request(handle)
  local headers = handle:headers()
  for i = 1, 10 do
    local _ = headers:get("test" .. i)
  end
end
