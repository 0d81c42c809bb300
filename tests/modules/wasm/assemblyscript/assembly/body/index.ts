// Replaces a text wherever it stands in the bodies of requests and responses.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, FilterDataStatusValues, FilterHeadersStatusValues, registerRootContext, RootContext, stream_context,
} from "@solo-io/proxy-runtime";
import { BufferTypeValues, get_buffer_bytes } from "@solo-io/proxy-runtime/runtime";
import { configuration, setting } from "../settings";

// The SDK has no word for it.
@external("env", "proxy_set_buffer_bytes")
declare function proxy_set_buffer_bytes(buffer: u32, start: u32, length: u32, bytes: usize, size: usize): u32;

class Plugin extends RootContext {
  find: Uint8Array = new Uint8Array(0);
  replace: Uint8Array = new Uint8Array(0);

  onConfigure(size: u32): bool {
    const json = configuration(size);
    this.find = Uint8Array.wrap(String.UTF8.encode(setting(json, "find")));
    this.replace = Uint8Array.wrap(String.UTF8.encode(setting(json, "replace")));
    return this.find.length > 0 && this.replace.length > 0;
  }

  createContext(id: u32): Context {
    return new Stream(id, this);
  }
}

class Stream extends Context {
  plugin: Plugin;

  constructor(id: u32, plugin: Plugin) {
    super(id, plugin);
    this.plugin = plugin;
  }

  onRequestHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    // The length will be another one.
    if (!end) stream_context.headers.request.remove("content-length");
    return FilterHeadersStatusValues.Continue;
  }

  onRequestBody(size: usize, end: bool): FilterDataStatusValues {
    return this.rewrite(BufferTypeValues.HttpRequestBody, size as u32, end);
  }

  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    if (!end) stream_context.headers.response.remove("content-length");
    return FilterHeadersStatusValues.Continue;
  }

  onResponseBody(size: usize, end: bool): FilterDataStatusValues {
    return this.rewrite(BufferTypeValues.HttpResponseBody, size as u32, end);
  }

  rewrite(buffer: BufferTypeValues, size: u32, end: bool): FilterDataStatusValues {
    // Held until it is whole; then `size` is all of it.
    if (!end) return FilterDataStatusValues.StopIterationAndBuffer;
    if (size == 0) return FilterDataStatusValues.Continue;
    const body = Uint8Array.wrap(get_buffer_bytes(buffer, 0, size));
    const found = occurrences(body, this.plugin.find);
    const find = this.plugin.find.length;
    const replace = this.plugin.replace;
    const out = new Uint8Array(body.length + found.length * (replace.length - find));
    let from = 0;
    let at = 0;
    for (let i = 0; i < found.length; i++) {
      out.set(body.subarray(from, found[i]), at);
      at += found[i] - from;
      out.set(replace, at);
      at += replace.length;
      from = found[i] + find;
    }
    out.set(body.subarray(from), at);
    proxy_set_buffer_bytes(buffer as u32, 0, size, changetype<usize>(out.buffer), out.length);
    return FilterDataStatusValues.Continue;
  }
}

// Where the text stands, without overlaps.
function occurrences(body: Uint8Array, text: Uint8Array): Array<i32> {
  const all = new Array<i32>();
  let at = 0;
  while (at + text.length <= body.length) {
    let same = 0;
    while (same < text.length && body[at + same] == text[same]) same++;
    if (same == text.length) {
      all.push(at);
      at += text.length;
    } else {
      at++;
    }
  }
  return all;
}

registerRootContext((id: u32) => new Plugin(id), "");
