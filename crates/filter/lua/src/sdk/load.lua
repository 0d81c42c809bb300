-- load and loadstring hand texts over in pieces: nothing could stop the compiler within one text, and some take it the square of
-- their length. Between pieces it asks Lua for the next one, and is stopped there.
local border = ...
local stack_is_low = border.api.stack_is_low
local load_chunk = load
local type, error, sub, tostring, getmetatable = type, error, string.sub, tostring, getmetatable
local create, resume = coroutine.create, coroutine.resume

-- What the compiler takes long for costs it a fraction of a millisecond for each byte, at the very worst a tenth of one.
local PIECE = 512

local function in_pieces(text)
  local at = 1
  return function()
    local from = at
    at = at + PIECE
    return sub(text, from, at - 1)
  end
end

-- The same for a function that gives the text bit by bit. What is no text at all is the compiler's to refuse.
local function each_in_pieces(read)
  local next_piece
  return function()
    local piece = next_piece and next_piece()
    if piece and piece ~= "" then return piece end
    next_piece = nil
    local text = read()
    if type(text) ~= "string" or #text <= PIECE then return text end
    next_piece = in_pieces(text)
    return next_piece()
  end
end

-- A call that is stopped while the compiler asks for a piece leaves LuaJIT in the belief that it is within its hook still, and
-- nothing would stop the call any more. An error that ends a coroutine brings it to its senses.
local function compiled(chunk, why)
  if chunk then return chunk end
  resume(create(error))
  return nil, why
end

function load(chunk, name, mode, env)
  local kind = type(chunk)
  if kind == "userdata" and getmetatable(chunk) == "buffer" then chunk, kind = tostring(chunk), "string" end
  local source = chunk
  if kind == "string" and #chunk > PIECE then
    -- Without a name it is called by its text.
    source, name = in_pieces(chunk), name or chunk
  elseif kind == "function" then
    if stack_is_low() ~= 0 then error("C stack overflow", 2) end
    source = each_in_pieces(chunk)
  end
  if type(source) == "function" then
    if env ~= nil then return compiled(load_chunk(source, name, mode, env)) end
    return compiled(load_chunk(source, name, mode))
  end
  if env ~= nil then return load_chunk(source, name, mode, env) end
  return load_chunk(source, name, mode)
end

loadstring = load

-- Places where modules are looked for are files that C tries to open, one by one.
local LONGEST_PATH = 65536
local function check_path(path)
  if type(path) == "string" and #path > LONGEST_PATH then error("a path of up to " .. LONGEST_PATH .. " bytes is expected", 3) end
end

-- A module may require the next one, and so on.
local require_module, package = require, package
function require(name)
  if stack_is_low() ~= 0 then error("C stack overflow", 2) end
  check_path(package.path)
  return require_module(name)
end

local search = package.searchpath
function package.searchpath(name, path, ...)
  check_path(path)
  return search(name, path, ...)
end
