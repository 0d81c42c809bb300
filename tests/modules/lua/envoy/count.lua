-- Counts the bytes of bodies as they pass, and tells the request's on the answer.
function envoy_on_request(handle)
  local bytes = 0
  for piece in handle:bodyChunks() do bytes = bytes + piece:length() end
  handle:streamInfo():dynamicMetadata():set("count", "bytes", tostring(bytes))
end

function envoy_on_response(handle)
  local counted = handle:streamInfo():dynamicMetadata():get("count")
  handle:headers():replace("x-request-bytes", counted and counted.bytes or "0")
  local bytes = 0
  for piece in handle:bodyChunks() do bytes = bytes + piece:length() end
end
