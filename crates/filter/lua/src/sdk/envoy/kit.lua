-- What all objects of Envoy's dialect have in common: their scope, the checks of their arguments, and the log.
--
-- An object is a small table whose fields are numbered, which LuaJIT allocates in one piece. The first field says for
-- how long it is good: a handle for its message, a metric for its filter, every other object until the script next waits.
local border = ...
local api, ctx = border.api, border.context
local type, tostring, tonumber, error, format = type, tostring, tonumber, error, string.format
local getmetatable, setmetatable, floor, ceil = getmetatable, setmetatable, math.floor, math.ceil
local log, log_enabled = api.log, api.log_enabled

local kit = {}

-- What `type` says, and "no value" for what is not there: a call without an argument is meant more often than a nil.
local function kind(value)
  return value == nil and "no value" or type(value)
end

-- Argument checks cost one comparison where the argument is right; these are for the others. `level` says who is blamed:
-- by default whoever called the method, and with 0 nobody yet.

-- Strings, and numbers as their text.
function kit.text(value, position, method, level)
  if type(value) == "number" then return tostring(value) end
  if type(value) == "string" then return value end
  error(format("bad argument #%d to '%s' (string expected, got %s)", position, method, kind(value)), level or 3)
end

-- Whole numbers, cut towards zero; texts of numbers count.
function kit.integer(value, position, method, level)
  local number = type(value) == "number" and value or type(value) == "string" and tonumber(value)
  if not number then
    error(format("bad argument #%d to '%s' (number expected, got %s)", position, method, kind(value)), level or 3)
  end
  return number < 0 and ceil(number) or floor(number)
end

function kit.expected(what, value, position, method, level)
  error(format("bad argument #%d to '%s' (%s expected, got %s)", position, method, what, kind(value)), level or 3)
end

-- Called by a method whose object is not good: it is another's, or its time is over.
function kit.dead(self, class, method)
  if type(self) ~= "table" or getmetatable(self) ~= class then
    error(format("bad argument #1 to '%s' (%s expected, got %s)", method, class.__name, kind(self)), 3)
  end
  error("object used outside of proper scope", 3)
end
local dead = kit.dead

local LEVELS = { Trace = 0, Debug = 1, Info = 2, Warn = 3, Err = 4, Critical = 5 }

-- Objects are no tables to scripts: these say so where a table would take them. Fields of ours that are there already are set
-- without a question. The words are those of LuaJIT for a value that can do none of it.
local classes = {}
local function foreign(class)
  classes[class] = true
  function class.__newindex() error("attempt to index a table value", 2) end
  function class.__len() error("attempt to get length of a table value", 2) end
  function class.__pairs(self)
    error(format("bad argument #1 to 'for iterator' (table expected, got %s)", kind(self)), 2)
  end
end

-- Whether it is an object of ours, which is no table to scripts.
function kit.is_object(value)
  local class = getmetatable(value)
  return class ~= nil and classes[class] ~= nil
end

-- A class whose objects carry the six log methods. `field` of the context, `turn`, `message` or `plugin`, bounds their lives.
function kit.class(name, field)
  local class = { __name = name }
  class.__index = class
  local of_plugin, of_message = field == "plugin", field == "message"
  for suffix, level in pairs(LEVELS) do
    local method = "log" .. suffix
    class[method] = function(self, message)
      local scope = of_plugin and ctx.plugin or of_message and ctx.message or ctx.turn
      if getmetatable(self) ~= class or self[1] ~= scope then dead(self, class, method) end
      if type(message) ~= "string" then message = kit.text(message, 1, method) end
      if log_enabled(level) ~= 0 then log(level, message, #message) end
    end
  end
  foreign(class)
  return class
end

-- One that has nothing but the six and `methods`: each method makes what it stands for.
function kit.facade(name, methods)
  local class = kit.class(name, "turn")
  for method, make in pairs(methods) do
    class[method] = function(self, argument)
      if self[1] ~= ctx.turn then dead(self, class, method) end
      -- Not a tail call: an error names the caller of the method.
      local value = make(argument)
      return value
    end
  end
  return function() return setmetatable({ ctx.turn }, class) end
end

return kit
