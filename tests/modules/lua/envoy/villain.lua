-- Does what its configuration says that plugins must not do; else it marks the request.
function envoy_on_request(handle)
  local what = handle:filterContext():get("do")
  if what == "error" then error("on purpose") end
  if what == "loop" then while true do end end
  if what == "hoard" then
    local hoard = {}
    while true do hoard[#hoard + 1] = ("x"):rep(65536) .. #hoard end
  end
  handle:headers():replace("x-done", "yes")
end
