-- Checks the claims of a signed token (HS256), and hands its subject on.
--   config: { "secret": text, "issuer": text, "claims": { name: value } }
require("rider.v2")
local base64, sha2, cjson = require("base64"), require("sha2"), require("cjson.safe")
local req, respond = envoy.req, envoy.respond

require("rider.json_validator").register_validator({
  type = "object",
  properties = {
    secret = { type = "string", minLength = 1 },
    issuer = { type = "string" },
    claims = { type = "object" },
  },
  required = { "secret" },
})

-- Why a token is refused; nil and its claims when it is not.
local function check(token, config)
  local head, payload, signature = token:match("^([%w_-]+)%.([%w_-]+)%.([%w_-]+)$")
  if not head then return "no token" end
  local about = cjson.decode(base64.decode(head) or "")
  if type(about) ~= "table" or about.alg ~= "HS256" then return "the token is not signed with HS256" end
  local expected = sha2.hex_to_bin(sha2.hmac(sha2.sha256, config.secret, head .. "." .. payload))
  if base64.decode(signature) ~= expected then return "the signature is wrong" end
  local claims = cjson.decode(base64.decode(payload) or "")
  if type(claims) ~= "table" then return "no claims" end
  if type(claims.exp) == "number" and claims.exp * 1000 < envoy.nowms() then return "the token is too old" end
  if config.issuer and claims.iss ~= config.issuer then return "the issuer is another" end
  for name, value in pairs(config.claims or {}) do
    if claims[name] ~= value then return "the claim " .. name .. " is another" end
  end
  return nil, claims
end

local plugin = { version = "v2" }

function plugin.on_request_header()
  local token = (req.get_header("authorization") or ""):match("^[Bb]earer (.+)$")
  local why, claims = "no token", nil
  if token then why, claims = check(token, envoy.get_base_config()) end
  if why then
    envoy.logInfo("refused: " .. why)
    respond({ [":status"] = 401, ["content-type"] = "application/json" }, cjson.encode({ error = why }))
  end
  req.remove_header("x-user")
  if type(claims.sub) == "string" and claims.sub ~= "" then req.set_header("x-user", claims.sub) end
end

return plugin
