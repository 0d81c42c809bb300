// Asks a service about each request: what it answers with 200 goes on, everything else is denied.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, FilterHeadersStatusValues, GrpcStatusValues, HeaderPair, registerRootContext, RootContext, send_local_response,
  stream_context,
} from "@solo-io/proxy-runtime";
import { BufferTypeValues, get_buffer_bytes } from "@solo-io/proxy-runtime/runtime";
import { configuration, setting } from "../settings";

// For the service's answer.
const TIMEOUT_MILLISECONDS: u32 = 5000;

class Plugin extends RootContext {
  cluster: string = "";
  path: string = "";

  onConfigure(size: u32): bool {
    const json = configuration(size);
    this.cluster = setting(json, "cluster");
    this.path = setting(json, "path");
    return this.cluster != "" && this.path != "";
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
    const question = [
      field(":method", "GET"), field(":path", this.plugin.path), field(":authority", this.plugin.cluster),
      field("x-original-path", stream_context.headers.request.get(":path")),
    ];
    const called = this.plugin.httpCall(
      this.plugin.cluster, question, new ArrayBuffer(0), [], TIMEOUT_MILLISECONDS, this,
      (origin: Context, headers: u32, size: usize, trailers: u32): void => {
        changetype<Stream>(origin).answered(headers, size as u32);
      });
    if ((called as u32) != 0) deny(500, "no call\n");
    return FilterHeadersStatusValues.StopIteration;
  }

  answered(headers: u32, size: u32): void {
    const status = headers == 0 ? "no answer" : stream_context.headers.http_callback.get(":status");
    if (status != "200") {
      deny(403, "denied by " + status + "\n");
      return;
    }
    if (size > 0) {
      const body = get_buffer_bytes(BufferTypeValues.HttpCallResponseBody, 0, size);
      stream_context.headers.request.replace("x-callout", String.UTF8.decode(body));
    }
    this.continueRequest();
  }
}

function field(name: string, value: string): HeaderPair {
  return new HeaderPair(String.UTF8.encode(name), String.UTF8.encode(value));
}

function deny(status: u32, text: string): void {
  send_local_response(status, "", String.UTF8.encode(text), [], GrpcStatusValues.Unknown);
}

registerRootContext((id: u32) => new Plugin(id), "");
