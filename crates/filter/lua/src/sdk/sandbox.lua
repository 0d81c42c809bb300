-- Takes away what a level does not allow, after the SDK has what it needs. FFI can reach any memory, so a script that
-- is trusted with it is trusted altogether: levels that leave it keep honest scripts from accidents.
local level, package_path, package_cpath, border = ...

if package_path ~= "" then package.path = package_path .. package.path end
if package_cpath ~= "" then package.cpath = package_cpath .. package.cpath end

if level == "full" then return end

os.exit, os.execute, os.remove, os.rename, os.tmpname, os.setlocale = nil, nil, nil, nil, nil, nil
io.popen, io.tmpfile, io.output, io.write = nil, nil, nil, nil
package.loadlib = nil

-- Searchers for machine code go, unless the configuration says where such code is to be found; those for Lua files stay.
local searchers = package.loaders
if package_cpath == "" then
  for i = #searchers, 3, -1 do searchers[i] = nil end
end

debug.sethook, debug.setlocal, debug.setupvalue, debug.upvalueid, debug.upvaluejoin = nil, nil, nil, nil, nil
debug.setuservalue, debug.debug = nil, nil

local ffi = package.loaded.ffi
if ffi then ffi.load = nil end

-- The registry keeps what the host runs, and a coroutine that is taken out of it is freed while it waits.
if not border.has_registry then debug.getregistry = nil end

-- LuaJIT calls these where it looks for no hook: nothing could stop what they do.
jit.attach = nil
package.loaded["jit.profile"] = nil
package.preload["jit.profile"] = function() error("the sandbox level `" .. level .. "` has no `jit.profile`", 0) end

if level ~= "strict" then return end

local date, time, clock, difftime = os.date, os.time, os.clock, os.difftime
os = { date = date, time = time, clock = clock, difftime = difftime }
io, debug, jit, ffi = nil, nil, nil, nil
loadfile, dofile = nil, nil
package.loaded.os = os
-- String buffers hand out pointers, and a pointer reaches any memory, also without ffi.
for _, name in ipairs { "io", "debug", "jit", "jit.util", "jit.opt", "jit.profile", "ffi", "string.buffer" } do
  package.loaded[name] = nil
  package.preload[name] = function() error("the sandbox level `strict` has no `" .. name .. "`", 0) end
end
local base = package.preload["rider.base"] and package.preload["rider.base"]()
if base then
  for _, name in ipairs { "get_context_handle", "get_string_buf" } do
    base[name] = function() error("the sandbox level `strict` has no pointers: `" .. name .. "` gives one", 2) end
  end
end

-- Nothing of a script is called by the collector.
local new_proxy = newproxy
newproxy = function(like)
  if like == true then error("the sandbox level `strict` has no proxies with metatables", 2) end
  return new_proxy(like)
end

package.path, package.cpath = "", ""
for i = #searchers, 2, -1 do searchers[i] = nil end
package.searchpath = nil

-- Precompiled code can break out: text only.
local load_chunk = load
load = function(chunk, name, _, env)
  if env ~= nil then return load_chunk(chunk, name, "t", env) end
  return load_chunk(chunk, name, "t")
end
loadstring = function(text, name) return load_chunk(text, name, "t") end
