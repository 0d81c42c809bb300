-- Finalisers of scripts, put by: where the collector calls them nothing could stop them. There they only join a line, which the
-- host calls for when the collector is done, on the budget of a call. Functions of C run where they always did. What still
-- lives when its machine ends is let go without: nobody would call for the line.
local ffi, debug = package.loaded.ffi, debug
local pcall, type, rawget, rawset, setmetatable = pcall, type, rawget, rawset, setmetatable

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

local function put_by(metatable)
  if type(metatable) ~= "table" then return end
  local finaliser = rawget(metatable, "__gc")
  if finaliser ~= nil then rawset(metatable, "__gc", stand_in_of(finaliser)) end
end

local gc, metatype = ffi.gc, ffi.metatype
-- In brackets: LuaJIT does not compile functions that end with a call of a built-in one.
ffi.gc = function(object, finaliser) return (gc(object, stand_in_of(finaliser))) end

ffi.metatype = function(ctype, metatable)
  put_by(metatable)
  return metatype(ctype, metatable)
end

local new_proxy, metatable_of, set_metatable = newproxy, debug.getmetatable, debug.setmetatable
local watched = {
  __newindex = function(metatable, key, value)
    rawset(metatable, key, key == "__gc" and stand_in_of(value) or value)
  end,
}

newproxy = function(like)
  local proxy = new_proxy(like)
  if like == true then setmetatable(metatable_of(proxy), watched) end
  return proxy
end

debug.setmetatable = function(value, metatable)
  if type(value) == "userdata" then put_by(metatable) end
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
