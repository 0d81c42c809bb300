-- R5 complex: normal, and the body read thirty times.
core.register_action("bench_request", { "http-req" }, function(txn)
  for i = 1, 20 do txn.http:req_set_header("test" .. i, "value") end
  for i = 1, 10 do
    local _ = txn.sf:req_hdr("test" .. i)
  end
  for i = 1, 20 do txn.http:req_del_header("test" .. i) end
  for _ = 1, 30 do
    local _ = txn.sf:req_body()
  end
end)
