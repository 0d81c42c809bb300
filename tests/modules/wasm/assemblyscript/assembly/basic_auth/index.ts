// Lets one user in, who is known by name and password.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, FilterHeadersStatusValues, GrpcStatusValues, HeaderPair, registerRootContext, RootContext,
  send_local_response, stream_context,
} from "@solo-io/proxy-runtime";
import { configuration, setting } from "../settings";

class Plugin extends RootContext {
  username: string = "";
  credentials: string = "";

  onConfigure(size: u32): bool {
    const json = configuration(size);
    this.username = setting(json, "username");
    const password = setting(json, "password");
    this.credentials = this.username + ":" + password;
    return this.username != "" && password != "";
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
    const field = stream_context.headers.request.get("authorization");
    if (!field.startsWith("Basic ") || decode(field.substr(6)) != this.plugin.credentials) {
      const challenge = new HeaderPair(
        String.UTF8.encode("www-authenticate"), String.UTF8.encode("Basic realm=\"postrider\""));
      send_local_response(401, "", String.UTF8.encode("unauthorized\n"), [challenge], GrpcStatusValues.Unknown);
      return FilterHeadersStatusValues.StopIteration;
    }
    stream_context.headers.request.replace("x-auth-user", this.plugin.username);
    return FilterHeadersStatusValues.Continue;
  }
}

// What a text in base64 stands for; empty when it is none.
function decode(encoded: string): string {
  let length = encoded.length;
  if (length % 4 != 0) return "";
  for (let pads = 0; pads < 2 && length > 0 && encoded.charCodeAt(length - 1) == 0x3d; pads++) length--;
  const bytes = new Uint8Array(length);
  let size = 0;
  let bits: u32 = 0;
  for (let i = 0; i < length; i++) {
    const six = sextet(encoded.charCodeAt(i));
    if (six < 0) return "";
    bits = (bits << 6) | (six as u32);
    if (i % 4 != 0) bytes[size++] = (bits >> (6 - (i % 4) * 2)) as u8;
  }
  return String.UTF8.decode(bytes.buffer.slice(0, size));
}

// The six bits that a character of base64 stands for; -1 when it is none.
function sextet(c: i32): i32 {
  if (c >= 0x41 && c <= 0x5a) return c - 0x41;
  if (c >= 0x61 && c <= 0x7a) return c - 0x61 + 26;
  if (c >= 0x30 && c <= 0x39) return c - 0x30 + 52;
  return c == 0x2b ? 62 : c == 0x2f ? 63 : -1;
}

registerRootContext((id: u32) => new Plugin(id), "");
