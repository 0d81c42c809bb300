-- Run by: postrider plugin test
local test = require("postrider.test")
PLUGIN

test.case("the upstream is greeted", function()
  local stream = test.stream { request = { path = "/hello" }, config = { greeting = "ahoy" } }
  local result = stream:run()
  test.equal(result.request.headers["x-greeting"], GREETING)
  test.equal(result.response.headers["x-plugin"], "NAME")
end)

test.case("who asks for it is refused", function()
  local result = test.stream { request = { headers = { ["x-refuse"] = "1" } } }:run()
  test.equal(result.response.status, 403)
  test.equal(result.response.body, "refused by NAME\n")
  test.equal(result.answered_by_plugin, "request")
end)
