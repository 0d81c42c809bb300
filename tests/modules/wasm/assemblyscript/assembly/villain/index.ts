// Does what its configuration says that plugins must not do; else it marks the request.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, FilterHeadersStatusValues, registerRootContext, RootContext, stream_context,
} from "@solo-io/proxy-runtime";
import { configuration, setting } from "../settings";

class Plugin extends RootContext {
  what: string = "";
  hoard: Array<ArrayBuffer> = [];

  onConfigure(size: u32): bool {
    this.what = setting(configuration(size), "do");
    return this.what != "";
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
    if (this.plugin.what == "error") throw new Error("on purpose");
    while (this.plugin.what == "loop") {}
    while (this.plugin.what == "hoard") this.plugin.hoard.push(new ArrayBuffer(1 << 20));
    stream_context.headers.request.replace("x-done", "yes");
    return FilterHeadersStatusValues.Continue;
  }
}

registerRootContext((id: u32) => new Plugin(id), "");
