// Renames the header fields that begin in some way, of requests and of responses.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, FilterHeadersStatusValues, registerRootContext, RootContext, stream_context,
} from "@solo-io/proxy-runtime";
import { configuration, setting } from "../settings";

class Plugin extends RootContext {
  from: string = "";
  to: string = "";

  onConfigure(size: u32): bool {
    const json = configuration(size);
    this.from = setting(json, "from");
    this.to = setting(json, "to");
    return this.from != "" && this.to != "";
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
    const fields = stream_context.headers.request;
    const all = fields.get_headers();
    for (let i = 0; i < all.length; i++) {
      const name = String.UTF8.decode(all[i].key);
      if (!name.startsWith(this.plugin.from)) continue;
      fields.remove(name);
      fields.add(this.renamed(name), String.UTF8.decode(all[i].value));
    }
    return FilterHeadersStatusValues.Continue;
  }

  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    const fields = stream_context.headers.response;
    const all = fields.get_headers();
    for (let i = 0; i < all.length; i++) {
      const name = String.UTF8.decode(all[i].key);
      if (!name.startsWith(this.plugin.from)) continue;
      fields.remove(name);
      fields.add(this.renamed(name), String.UTF8.decode(all[i].value));
    }
    return FilterHeadersStatusValues.Continue;
  }

  renamed(name: string): string {
    return this.plugin.to + name.substr(this.plugin.from.length);
  }
}

registerRootContext((id: u32) => new Plugin(id), "");
