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

-- Room for bytes: the one that all share, unless more is wanted or it must be the caller's own.
local ffi = require("ffi")
local new, bytes = ffi.new, ffi.typeof("char[?]")
local SHARED_BYTES = 4096
local shared
function module.get_string_buf(size, must_alloc)
  size = size or SHARED_BYTES
  if size > SHARED_BYTES or must_alloc then return new(bytes, size) end
  shared = shared or new(bytes, SHARED_BYTES)
  return shared
end

border.modules = { ["rider.base"] = module, envoy = envoy }
return module
