-- What the parts of Rider's SDK share: the one `envoy` table of the plugin, and the `rider.base` module.
local border, json, copies_route_config = ...

local envoy = { req = {}, resp = {}, runtime = {}, streaminfo = {}, stream = {} }
border.envoy, border.json, border.copies_route_config = envoy, json, copies_route_config

-- Plugins of the second version have hooks on bodies of their own, so their get_body() never waits. Which version a
-- plugin is of it says itself (`handler.version`), whatever it requires.
border.is_v2 = false

local module = {
  FFI_OK = 0, FFI_BadContext = -1, FFI_NotFound = -2, FFI_BadArgument = -3, FFI_Unsupported = -4,
}

function module.get_context_handle() return border.context end

local ffi = require("ffi")
local buffer
function module.get_string_buf()
  buffer = buffer or ffi.new("struct { int len; const char *data; }[1]")
  return buffer
end

border.modules = { ["rider.base"] = module, envoy = envoy }
return module
