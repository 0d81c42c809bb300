-- `sdk: filesystem`: the SDK is read from the plugin's package_path and works over exported C functions. What it expects
-- to find is made here: an `envoy` table with some functions, a context, and a table for each stream by its number.
local border = ...
local ffi = require("ffi")
local ours = border.envoy

local envoy = { req = {}, resp = {}, runtime = {}, streaminfo = {}, stream = {} }
-- The first SDK's: the second's files bring their own.
envoy.req.get_body, envoy.resp.get_body = ours.req.get_body, ours.resp.get_body
-- Published plugins use these, and no published file has them.
envoy.req.set_body, envoy.resp.set_body = ours.req.set_body, ours.resp.set_body
envoy.req.set_dynamic_metadata = ours.req.set_dynamic_metadata
envoy.respond, envoy.httpCall = ours.respond, ours.httpCall
border.envoy = envoy

-- A pointer, not a light userdata: calls that pass one are compiled. Nothing reads through it.
_G._envoy_context = ffi.cast("void *", border.context)

-- The SDK asks the registry for the table of a stream by the number that it was told.
local shared, ctx, keep = border.shared, border.context, border.api.keep
setmetatable(shared, {
  __index = function(all, stream)
    if stream ~= ctx.stream or ctx.side < 0 then return nil end
    local made = {}
    all[stream] = made
    keep()
    return made
  end,
})
if debug then debug.getregistry = function() return shared end end
border.has_registry = true
