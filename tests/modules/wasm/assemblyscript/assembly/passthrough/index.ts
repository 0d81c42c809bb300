// Sees each request, and lets it go on.
export * from "@solo-io/proxy-runtime/proxy";
import { Context, FilterHeadersStatusValues, registerRootContext, RootContext } from "@solo-io/proxy-runtime";

class Plugin extends RootContext {
  onConfigure(size: u32): bool {
    return true;
  }

  createContext(id: u32): Context {
    return new Stream(id, this);
  }
}

class Stream extends Context {
  onRequestHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    return FilterHeadersStatusValues.Continue;
  }
}

registerRootContext((id: u32) => new Plugin(id), "");
