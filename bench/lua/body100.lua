-- R5: the body read a hundred times.
function envoy_on_request(handle)
  for _ = 1, 100 do
    local body = handle:body()
    local _ = body and body:getBytes(0, body:length())
  end
end
