-- R5 normal: twenty headers set, ten read, the twenty removed.
function envoy_on_request(handle)
  local headers = handle:headers()
  for i = 1, 20 do headers:replace("test" .. i, "value") end
  for i = 1, 10 do
    local _ = headers:get("test" .. i)
  end
  for i = 1, 20 do headers:remove("test" .. i) end
end
