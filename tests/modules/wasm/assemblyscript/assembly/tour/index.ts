// Calls the functions of the host that the SDK has words for, and tells what came of each: `x-tour` of the answer names them
// in their order. Its words for shared data, queues and reading statistics pass other arguments than the ABI has.
export * from "@solo-io/proxy-runtime/proxy";
import {
  Context, Counter, FilterDataStatusValues, FilterHeadersStatusValues, Gauge, GrpcStatusValues, HeaderPair, Histogram, log,
  LogLevelValues, registerRootContext, RootContext, send_local_response, stream_context,
} from "@solo-io/proxy-runtime";
import {
  BufferTypeValues, done, get_buffer_bytes, get_buffer_status, get_current_time_nanoseconds, get_header_map_size, get_property,
  HeaderMapTypeValues, set_property, set_tick_period_milliseconds,
} from "@solo-io/proxy-runtime/runtime";
import { configuration, setting } from "../settings";

const TIMEOUT_MILLISECONDS: u32 = 5000;

class Plugin extends RootContext {
  service: string = "";
  ticked: string = "";

  onConfigure(size: u32): bool {
    this.service = setting(configuration(size), "service");
    set_tick_period_milliseconds(10);
    return this.service != "";
  }

  onTick(): void {
    this.ticked = "ticked";
  }

  createContext(id: u32): Context {
    return new Stream(id, this);
  }
}

class Stream extends Context {
  plugin: Plugin;
  found: string = "";

  constructor(id: u32, plugin: Plugin) {
    super(id, plugin);
    this.plugin = plugin;
  }

  tell(name: string, result: string): void {
    this.found += (this.found == "" ? "" : " ") + name + "=" + result;
  }

  onRequestHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    const request = stream_context.headers.request;
    if (request.get(":path") == "/answer") {
      const answered = new HeaderPair(String.UTF8.encode("x-answered"), String.UTF8.encode("yes"));
      send_local_response(418, "", String.UTF8.encode("teapot"), [answered], GrpcStatusValues.Unknown);
      return FilterHeadersStatusValues.StopIteration;
    }
    log(LogLevelValues.info, "a tour");
    this.tell("log", "ok");
    this.tell("get_current_time_nanoseconds", get_current_time_nanoseconds() > 1000000000000000000 ? "true" : "false");
    this.tell("get_property", String.UTF8.decode(get_property("plugin_name")));
    this.tell("set_property", (set_property("toured", String.UTF8.encode("yes")) as u32).toString());
    this.tell("done", (done() as u32).toString());
    this.tell("define_metric", (new Counter("tour_counter").increment(3) as u32).toString());
    this.tell("increment_metric", (new Gauge("tour_gauge").increment(5) as u32).toString());
    const histogram = new Histogram("tour_histogram");
    this.tell("record_metric", (new Gauge("tour_level").record(histogram.metric_id, 7) as u32).toString());
    this.tell("get_header_map_value", request.get("x-a"));
    request.replace("x-a", "2");
    request.add("x-added", "1");
    request.remove("x-b");
    this.tell("get_header_map_size", get_header_map_size(HeaderMapTypeValues.RequestHeaders) > 10 ? "true" : "false");
    const question = [
      new HeaderPair(String.UTF8.encode(":method"), String.UTF8.encode("GET")),
      new HeaderPair(String.UTF8.encode(":path"), String.UTF8.encode("/asked")),
      new HeaderPair(String.UTF8.encode(":authority"), String.UTF8.encode(this.plugin.service)),
    ];
    const called = this.plugin.httpCall(
      this.plugin.service, question, String.UTF8.encode("body"), [], TIMEOUT_MILLISECONDS, this,
      (origin: Context, headers: u32, size: usize, trailers: u32): void => { changetype<Stream>(origin).answered(size as u32); });
    this.tell("http_call", (called as u32).toString());
    return FilterHeadersStatusValues.StopIteration;
  }

  answered(size: u32): void {
    this.tell("get_buffer_bytes", String.UTF8.decode(get_buffer_bytes(BufferTypeValues.HttpCallResponseBody, 0, size)));
    this.continueRequest();
  }

  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    this.tell("set_tick_period_milliseconds", this.plugin.ticked);
    stream_context.headers.response.add("x-tour", this.found);
    return FilterHeadersStatusValues.Continue;
  }

  onResponseBody(size: usize, end: bool): FilterDataStatusValues {
    const status = get_buffer_status(BufferTypeValues.HttpResponseBody);
    if (status.result != 0 || status.length != size) throw new Error("the buffer of the body is not as it was told");
    return FilterDataStatusValues.Continue;
  }
}

registerRootContext((id: u32) => new Plugin(id), "");
