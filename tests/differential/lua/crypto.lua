-- keys and signatures
-- The results of a call, or its error, as one line.
local function try(f, ...)
  local function line(ok, ...)
    local parts = { ok and select("#", ...) or "error" }
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return (table.concat(parts, " "):gsub("[%c]", "|"))
  end
  return line(pcall(f, ...))
end
local function hex(text) return (text:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)) end
local KEY = hex("30820122300d06092a864886f70d01010105000382010f003082010a0282010100e56605edb039a37d6c4928d657dc65f0b57db9e8cb1b2cbb722518c9d32d69ed9d0c4d320661d4ba0d85bbc6da7135ad9c56fd1323d35a62b1d5fb765c51f2b85fb6b676dfbe74bcedf3a61cae142bda2cb98a61aa540f3ba054a95b81ce171c3228d60e8b9cc841de9b25588f5d54ccaa0f6ebacd22c3c2d39b53280a6b7440568afe137d1184f4586bfb7b8007f799d0f57ac0187d258eecb66e0eceb600df9fa062fd875b68609048eb04dc9439250c9fad75b148b9c43bedf784877d8d05e04bce0970a8f7a30b37bc575119c1620608e7647b4ea8e8c9df87e37c73213eb7d0a08f84a1112a3f5aab682ed6c2fbc69f5d4f45423473b564d7b9347d20b10203010001")
local DATA = "hello"
local SIG = hex("8d07c882acf8f81c392e1f2e9f0df2c4c2630bb74f0f5fe66135592b3b6529f3ae5c415f06277bf023cafd6fb78c420774036519c8c9cb00d9e46d72ecd1eba02e22af587d5ec5e3f8697e9674437f1dd3fad28f6476ce14aee922fcc948306affe00893fabf06fb9fc366e9af6851c76cda36a3fa2bfced3aa908020531fc3d5d16a3d8f72f91532bb0cfef72030215bd2d6ea818a076bd6036d476dd12e0d6dfb7f51d511c5df88e3256ee69f34e5f63e3331ea2e1c6f60c87b0ead5b7be15bfa725102ef30be6ffdabf9c1ab81486a83c860783053c92c6b6ea8527620eb76540073c14a255d799f82fadaaa84830188fbab78fadb63f1c56a6bd2144368c")
function envoy_on_request(handle)
  local key = handle:importPublicKey(KEY, #KEY)
  local v = function(...) return try(handle.verifySignature, handle, ...) end
  local out = {
    key = type(key), get = try(function() return type(key:get()) end), 
    ok = v("sha256", key:get(), SIG, #SIG, DATA, #DATA), tampered = v("sha256", key:get(), SIG, #SIG, "hellO", 5), hash = v("sha1", key:get(), SIG, #SIG, DATA, #DATA),
    unknown = v("md5", key:get(), SIG, #SIG, DATA, #DATA), upper = v("SHA256", key:get(), SIG, #SIG, DATA, #DATA), 
    short = v("sha256", key:get(), "abc", 3, DATA, #DATA), noargs = v(), noimport = try(handle.importPublicKey, handle), userdata = v("sha256", key, SIG, #SIG, DATA, #DATA),
    cut = v("sha256", key:get(), SIG, #SIG, DATA .. "!", #DATA), nilkey = v("sha256", nil, SIG, #SIG, DATA, #DATA), over = try(handle.importPublicKey, handle, "abc", 2),
  }
  for k, w in pairs(out) do handle:headers():replace("r-" .. k, (w:gsub("0x%x+", "PTR"))) end
end
