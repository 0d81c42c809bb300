-- Changes the JSON bodies of requests: drops fields, and adds some. For the first SDK, whose get_body() waits.
--   config: { "drop": [name], "add": { name: value } }
require("rider")
local cjson = require("cjson.safe")
local req, respond = envoy.req, envoy.respond

local plugin = {}

function plugin.on_request()
  if (req.get_header("content-type") or ""):sub(1, 16) ~= "application/json" then return end
  local config = envoy.get_base_config()
  local body = req.get_body()
  if not body then return end
  local document, why = cjson.decode(body:getBytes(0, body:length()))
  if type(document) ~= "table" then
    respond({ [":status"] = 400, ["content-type"] = "text/plain" }, "the body is no JSON: " .. tostring(why) .. "\n")
  end
  for _, name in ipairs(config.drop or {}) do document[name] = nil end
  for name, value in pairs(config.add or {}) do document[name] = value end
  body:setBytes(cjson.encode(document))
end

return plugin
