// Counts the bytes of bodies as they pass, and tells the request's on the answer.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, FilterDataStatusValues, FilterHeadersStatusValues, registerRootContext, RootContext, stream_context,
} from "@solo-io/proxy-runtime";

class Plugin extends RootContext {
  createContext(id: u32): Context {
    return new Stream(id, this);
  }
}

class Stream extends Context {
  bytes: u64 = 0;

  constructor(id: u32, plugin: Plugin) {
    super(id, plugin);
  }

  onRequestBody(size: usize, end: bool): FilterDataStatusValues {
    this.bytes += size;
    return FilterDataStatusValues.Continue;
  }

  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    stream_context.headers.response.replace("x-request-bytes", this.bytes.toString());
    return FilterHeadersStatusValues.Continue;
  }

  onResponseBody(size: usize, end: bool): FilterDataStatusValues {
    return FilterDataStatusValues.Continue;
  }
}

registerRootContext((id: u32) => new Plugin(id), "");
