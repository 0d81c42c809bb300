-- R5 complex: normal, and the body read thirty times.
function envoy_on_request(handle)
  local headers = handle:headers()
  for i = 1, 20 do headers:replace("test" .. i, "value") end
  for i = 1, 10 do
    local _ = headers:get("test" .. i)
  end
  for i = 1, 20 do headers:remove("test" .. i) end
  for _ = 1, 30 do
    local body = handle:body()
    local _ = body and body:getBytes(0, body:length())
  end
end
