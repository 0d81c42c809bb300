-- tonumber with a base. LuaJIT compiles it for ten only: around another one a script's loop would run uncompiled, and most
-- of what it takes would be that. What is not plain digits the C function reads, and what it raises is the script's.
local border = ...
local whole_number = border.api.whole_number
local type, tonumber = type, tonumber

_G.tonumber = function(...)
  local value, base = ...
  if base == nil then
    -- In brackets: LuaJIT does not compile functions that end with a call of a built-in one. It raises nothing here.
    if value ~= nil then return (tonumber(value)) end
  elseif type(value) == "string" and type(base) == "number" and base >= 2 and base <= 36 then
    local number = whole_number(value, #value, base)
    if number >= 0 then return number end
  end
  return tonumber(...)
end
