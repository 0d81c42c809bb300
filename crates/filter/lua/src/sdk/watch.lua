-- Tells the host which files `require` loads: when one changes, the configuration is read again.
local border = ...
local required = border.api.required
local loaders, searchpath = package.loaders, package.searchpath
local search = loaders[2]
if not search or not searchpath then return end
loaders[2] = function(name)
  local found = search(name)
  if type(found) == "function" then
    local path = searchpath(name, package.path)
    if path then required(path, #path) end
  end
  return found
end
