-- Tells the host which files `require` loads: when one changes, the configuration is read again.
local border = ...
local required = border.api.required
local loaders, searchpath = package.loaders, package.searchpath
local search = loaders[2]
if not search or not searchpath then return end
loaders[2] = function(name)
  -- Told first: a file that does not load is in force with its mending, too.
  local path = searchpath(name, package.path)
  if path then required(path, #path) end
  -- A tail call: an error of the file has no line of this one in front of it.
  return search(name)
end
