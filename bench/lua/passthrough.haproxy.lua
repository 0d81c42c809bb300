-- An action on the request and one on the response, nothing in them.
core.register_action("bench_request", { "http-req" }, function(txn) end)
core.register_action("bench_response", { "http-res" }, function(txn) end)
