-- envoy.log…() and envoy.filelog().
local border = ...
local api, envoy = border.api, border.envoy
local log, enabled, file_log = api.log, api.log_enabled, api.file_log
local type, error = type, error

local function logger(level)
  return function(message)
    if type(message) ~= "string" then
      if message ~= nil then error("msg must be a string", 2) end
      message = "nil"
    end
    if enabled(level) ~= 0 then log(level, message, #message) end
  end
end

envoy.logTrace, envoy.logDebug, envoy.logInfo = logger(0), logger(1), logger(2)
envoy.logWarn, envoy.logErr = logger(3), logger(4)

function envoy.filelog(message)
  if type(message) ~= "string" then error("msg must be a string", 2) end
  file_log(message, #message)
end

local module = {}
border.modules["rider.logging"], border.modules["rider.v2.logging"] = module, module
return module
