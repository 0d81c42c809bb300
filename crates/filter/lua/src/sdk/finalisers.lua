-- Finalisers of scripts, put by: where the collector calls them nothing could stop them. There they only join a line, which the
-- host calls for when the collector is done, on the budget of a call. Functions of C run where they always did. What still
-- lives when its machine ends is let go without: nobody would call for the line.
local ffi, debug = package.loaded.ffi, debug
local pcall, type, next, rawget, setmetatable = pcall, type, next, rawget, setmetatable

local functions, objects, first, last = {}, {}, 1, 0

-- What stands in each finaliser's place, for as long as something has it.
local stand_ins = setmetatable({}, { __mode = "kv" })
local is_stand_in = setmetatable({}, { __mode = "k" })

local function stand_in_of(finaliser)
  if finaliser == nil or type(finaliser) == "cdata" or is_stand_in[finaliser] then return finaliser end
  local stand_in = stand_ins[finaliser]
  if not stand_in then
    stand_in = function(object)
      last = last + 1
      functions[last], objects[last] = finaliser, object
    end
    stand_ins[finaliser], is_stand_in[stand_in] = stand_in, true
  end
  return stand_in
end

local gc, metatype = ffi.gc, ffi.metatype
-- In brackets: LuaJIT does not compile functions that end with a call of a built-in one.
ffi.gc = function(object, finaliser) return (gc(object, stand_in_of(finaliser))) end

-- The metatable that is used: the script keeps its own, which may change without anybody seeing it.
local function copy_of(metatable)
  local copy = {}
  for key, value in next, metatable do copy[key] = value end
  copy.__gc = stand_in_of(copy.__gc)
  return copy
end

-- LuaJIT lets nobody change a metatable of cdata afterwards: a copy is as good.
ffi.metatype = function(ctype, metatable)
  return metatype(ctype, type(metatable) == "table" and copy_of(metatable) or metatable)
end

local new_proxy, metatable_of, set_metatable = newproxy, debug.getmetatable, debug.setmetatable

-- Scripts see a view of a metatable that may have a finaliser, and write through it. It stands in the metatable itself.
local VIEW = {}

local function view_of(metatable)
  local function write(_, key, value) metatable[key] = key == "__gc" and stand_in_of(value) or value end
  local function each() return next, metatable end
  metatable[VIEW] = setmetatable({}, { __index = metatable, __newindex = write, __pairs = each, __metatable = false })
  return metatable[VIEW]
end

newproxy = function(like)
  local proxy = new_proxy(like)
  if like == true then
    local metatable = metatable_of(proxy)
    metatable.__metatable = view_of(metatable)
  end
  return proxy
end

local file_metatable = metatable_of(io.stdout)
file_metatable.__metatable = view_of(file_metatable)
-- This one nobody gets but by `debug`.
view_of(metatable_of(require("string.buffer").new()))

debug.getmetatable = function(value)
  local metatable = metatable_of(value)
  return metatable and rawget(metatable, VIEW) or metatable
end

debug.setmetatable = function(value, metatable)
  if type(value) == "userdata" and type(metatable) == "table" then
    local used = copy_of(metatable)
    used[VIEW] = metatable
    set_metatable(value, used)
    return value
  end
  return set_metatable(value, metatable)
end

-- Runs all that wait. One that raises an error has nobody to tell.
return function()
  while first <= last do
    local finaliser, object = functions[first], objects[first]
    functions[first], objects[first] = nil, nil
    first = first + 1
    pcall(finaliser, object)
  end
  first, last = 1, 0
end
