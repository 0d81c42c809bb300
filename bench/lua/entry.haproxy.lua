-- An action on the request and one on the response, with one statement each.
core.register_action("bench_request", { "http-req" }, function(txn) local seen = txn end)
core.register_action("bench_response", { "http-res" }, function(txn) local seen = txn end)
