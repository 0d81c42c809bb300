-- Files at the sandbox level `standard`: to be read only, and none that could keep the worker waiting, since it serves nobody
-- else meanwhile.
local border = ...
local may_wait = border.api.may_wait
local error, type, tostring = error, type, tostring
local open, lines, input, read = io.open, io.lines, io.input, io.read
local load_file, do_file = loadfile, dofile

local STANDARD_INPUT = "the process's standard input cannot be read (sandbox: standard)"

-- Why a file is not opened; nothing for one that is.
local function refusal(name)
  if type(name) ~= "string" and type(name) ~= "number" then return end
  name = tostring(name)
  if may_wait(name, #name) ~= 0 then return name .. ": reading this could wait without end (sandbox: standard)" end
end

io.open = function(name, mode)
  if mode ~= nil and not (mode == "r" or mode == "rb") then
    return nil, "files can only be read here (sandbox: standard)"
  end
  local why = refusal(name)
  if why then return nil, why end
  return open(name, mode)
end

-- Whether there is a default input that the script chose.
local has_input = false

io.input = function(file)
  if file == nil and not has_input then error(STANDARD_INPUT, 2) end
  local why = refusal(file)
  if why then error(why, 2) end
  local chosen = input(file)
  has_input = true
  return chosen
end

io.read = function(...)
  if not has_input then error(STANDARD_INPUT, 2) end
  return read(...)
end

io.lines = function(name, ...)
  local why = refusal(name) or (name == nil and not has_input and STANDARD_INPUT)
  if why then error(why, 2) end
  return lines(name, ...)
end

loadfile = function(name, ...)
  local why = refusal(name) or (name == nil and STANDARD_INPUT)
  if why then return nil, why end
  return load_file(name, ...)
end

dofile = function(name)
  local why = refusal(name) or (name == nil and STANDARD_INPUT)
  if why then error(why, 2) end
  return do_file(name)
end

io.stdin = nil
