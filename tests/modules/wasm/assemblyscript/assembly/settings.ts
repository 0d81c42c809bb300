// Reads a plugin's configuration: one JSON object of strings.
import { BufferTypeValues, get_buffer_bytes, log, LogLevelValues } from "@solo-io/proxy-runtime/runtime";

// The plugin's configuration. RootContext.onConfigure of the SDK loses it: whoever overrides that calls this.
export function configuration(size: u32): string {
  return size == 0 ? "" : String.UTF8.decode(get_buffer_bytes(BufferTypeValues.PluginConfiguration, 0, size));
}

// The text of the object's own field; empty, and said in the log, when there is none.
export function setting(json: string, name: string): string {
  let at = 0;
  let depth = 0;
  while (at < json.length) {
    const c = json.charCodeAt(at);
    if (c == 0x7b || c == 0x5b) depth++; // { [
    if (c == 0x7d || c == 0x5d) depth--; // } ]
    if (c != 0x22) { // "
      at++;
      continue;
    }
    let end = behind(json, at);
    const word = text(json, at, end);
    at = blank(json, end);
    if (depth != 1 || at >= json.length || json.charCodeAt(at) != 0x3a) continue; // :
    at = blank(json, at + 1);
    if (at >= json.length || json.charCodeAt(at) != 0x22) continue;
    end = behind(json, at);
    if (word == name) return text(json, at, end);
    at = end;
  }
  log(LogLevelValues.critical, "the configuration lacks " + name);
  return "";
}

function blank(json: string, at: i32): i32 {
  while (at < json.length && json.charCodeAt(at) <= 0x20) at++;
  return at;
}

// The place behind the JSON string that begins at `at`.
function behind(json: string, at: i32): i32 {
  for (let i = at + 1; i < json.length; i++) {
    const c = json.charCodeAt(i);
    if (c == 0x22) return i + 1;
    if (c == 0x5c) i++; // \
  }
  return json.length;
}

// What the JSON string between these places says.
function text(json: string, at: i32, end: i32): string {
  let out = "";
  for (let i = at + 1; i < end - 1; i++) {
    let c = json.charCodeAt(i);
    if (c == 0x5c) {
      c = json.charCodeAt(++i);
      if (c == 0x75) { // u
        c = parseInt("0x" + json.substr(i + 1, 4)) as i32;
        i += 4;
      } else if (c == 0x6e) {
        c = 0x0a;
      } else if (c == 0x74) {
        c = 0x09;
      } else if (c == 0x72) {
        c = 0x0d;
      } else if (c == 0x62) {
        c = 0x08;
      } else if (c == 0x66) {
        c = 0x0c;
      }
    }
    out += String.fromCharCode(c);
  }
  return out;
}
