//! The plugins that are written for every runtime, as a native module in Rust without any crate: `../README.md` says what each
//! does. The configuration's filter_name chooses.
//!
//! `abi` is the border: what the proxy lends becomes slices and vectors there, and the rest of the file is safe code.

use std::ffi::{c_char, c_int, c_void};

use abi::{REQUEST_HEADERS, RESPONSE_HEADERS, Stream};

const HEAD_CONTINUE: c_int = 0;
const HEAD_STOP: c_int = 1;
/// The body waits with the head, and its sender when that is much.
const HEAD_STOP_ALL: c_int = 4;
const BODY_CONTINUE: c_int = 0;
const BODY_STOP_AND_BUFFER: c_int = 1;
/// For the service's answer.
const TIMEOUT_MILLISECONDS: u64 = 5000;

/// A configuration: which plugin, and its settings.
#[derive(Clone)]
struct Config {
    plugin: String,
    settings: Vec<(String, String)>,
}

/// A plugin's part of one stream.
struct Filter {
    config: Config,
    counted: usize,
}

impl Config {
    /// Reads an object of texts without escapes.
    fn read(plugin: String, json: &str) -> Config {
        let texts: Vec<&str> = json.split('"').skip(1).step_by(2).collect();
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
        Config { plugin, settings: pairs.collect() }
    }

    fn setting(&self, key: &str) -> &str {
        self.settings.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

impl Filter {
    fn new(config: &Config) -> Option<Filter> {
        let fails = config.plugin == "villain" && config.setting("do") == "error";
        (!fails).then(|| Filter { config: config.clone(), counted: 0 })
    }

    fn on_request_headers(&self, stream: Stream, end: bool) -> c_int {
        match self.config.plugin.as_str() {
            "basic_auth" => return self.authenticate(stream),
            "headers" => self.rename(stream, REQUEST_HEADERS),
            "body" if !end => stream.set(REQUEST_HEADERS, b"content-length", None),
            "callout" => return self.ask(stream),
            "villain" => stream.set(REQUEST_HEADERS, b"x-done", Some(b"yes")),
            _ => {}
        }
        HEAD_CONTINUE
    }

    fn on_request_body(&mut self, stream: Stream, end: bool) -> c_int {
        match self.config.plugin.as_str() {
            "body" => return self.rewrite(stream, abi::REQUEST_RECEIVED, abi::REQUEST_KEPT, end),
            "count" => self.counted += stream.body_size(abi::REQUEST_RECEIVED),
            _ => {}
        }
        BODY_CONTINUE
    }

    fn on_response_headers(&self, stream: Stream, end: bool) -> c_int {
        match self.config.plugin.as_str() {
            "headers" => self.rename(stream, RESPONSE_HEADERS),
            "body" if !end => stream.set(RESPONSE_HEADERS, b"content-length", None),
            "count" => stream.set(RESPONSE_HEADERS, b"x-request-bytes", Some(self.counted.to_string().as_bytes())),
            _ => {}
        }
        HEAD_CONTINUE
    }

    fn on_response_body(&self, stream: Stream, end: bool) -> c_int {
        match self.config.plugin.as_str() {
            "body" => self.rewrite(stream, abi::RESPONSE_RECEIVED, abi::RESPONSE_KEPT, end),
            _ => BODY_CONTINUE,
        }
    }

    fn authenticate(&self, stream: Stream) -> c_int {
        let user = self.config.setting("username");
        let known = format!("Basic {}", base64(format!("{user}:{}", self.config.setting("password")).as_bytes()));
        if stream.header(b"authorization").as_deref() != Some(known.as_bytes()) {
            stream.answer(401, &[("www-authenticate", r#"Basic realm="postrider""#)], b"unauthorized\n");
            return HEAD_STOP;
        }
        stream.set(REQUEST_HEADERS, b"x-auth-user", Some(user.as_bytes()));
        HEAD_CONTINUE
    }

    fn rename(&self, stream: Stream, map: c_int) {
        let (from, to) = (self.config.setting("from"), self.config.setting("to"));
        let mut fields = stream.headers(map);
        fields.retain(|(name, _)| name.starts_with(from.as_bytes()));
        for (name, _) in &fields {
            stream.set(map, name, None);
        }
        for (name, value) in &fields {
            stream.add(map, &[to.as_bytes(), &name[from.len()..]].concat(), value);
        }
    }

    /// Rewrites a body that is whole: what was kept of it, and what came last, which may be part of that.
    fn rewrite(&self, stream: Stream, received: c_int, kept: c_int, end: bool) -> c_int {
        if !end {
            return BODY_STOP_AND_BUFFER;
        }
        let mut rest = stream.take_body(kept);
        rest.extend(stream.take_body(received));
        let (find, replace) = (self.config.setting("find").as_bytes(), self.config.setting("replace").as_bytes());
        let mut rewritten = Vec::with_capacity(rest.len());
        let mut rest = rest.as_slice();
        while let Some((first, others)) = rest.split_first() {
            match rest.strip_prefix(find) {
                Some(behind) => {
                    rewritten.extend_from_slice(replace);
                    rest = behind;
                }
                None => {
                    rewritten.push(*first);
                    rest = others;
                }
            }
        }
        stream.append(received, &rewritten);
        BODY_CONTINUE
    }

    fn ask(&self, stream: Stream) -> c_int {
        let (cluster, asked) = (self.config.setting("cluster").as_bytes(), self.config.setting("path").as_bytes());
        let path = stream.header(b":path").unwrap_or_default();
        let question: [(&[u8], &[u8]); 4] =
            [(b":method", b"GET"), (b":path", asked), (b":authority", cluster), (b"x-original-path", &path)];
        if !stream.call(cluster, &question, TIMEOUT_MILLISECONDS) {
            stream.answer(500, &[], b"no call\n");
        }
        HEAD_STOP_ALL
    }

    /// The service answered, or did not.
    fn on_answer(&self, stream: Stream, answer: Option<(Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>)>) {
        let (fields, body) = answer.unwrap_or_default();
        let status = fields.iter().find(|(name, _)| name == b":status").map_or(b"503".as_slice(), |(_, value)| value);
        if status != b"200" {
            return stream.answer(403, &[], &[b"denied by ", status, b"\n"].concat());
        }
        if !body.is_empty() {
            stream.set(REQUEST_HEADERS, b"x-callout", Some(&body));
        }
        stream.go_on();
    }
}

fn base64(plain: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in plain.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let sextet = bits >> (18 - 6 * place) & 63;
            text.push(if place > group.len() { '=' } else { ALPHABET[sextet as usize].into() });
        }
    }
    text
}

/// The border: Envoy's binary interface for dynamic modules, as `include/postrider_module.h` has it.
mod abi {
    use super::{Config, Filter, HEAD_CONTINUE, c_char, c_int, c_void};

    pub const REQUEST_HEADERS: c_int = 0;
    pub const RESPONSE_HEADERS: c_int = 2;
    pub const REQUEST_RECEIVED: c_int = 0;
    pub const REQUEST_KEPT: c_int = 1;
    pub const RESPONSE_RECEIVED: c_int = 2;
    pub const RESPONSE_KEPT: c_int = 3;
    const CALL_STARTED: c_int = 0;
    const CALL_ANSWERED: c_int = 0;

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Bytes {
        start: *const c_char,
        length: usize,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Header {
        name: Bytes,
        value: Bytes,
    }

    /// The proxy's stream, as long as a hook of it runs.
    #[repr(transparent)]
    #[derive(Clone, Copy)]
    pub struct Stream(*mut c_void);

    macro_rules! proxy {
        ($(fn $short:ident = $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
            unsafe extern "C" {
                $(#[link_name = stringify!($name)] fn $short($($argument: $type),*) $(-> $result)?;)*
            }
        };
    }
    proxy! {
        fn get_header = envoy_dynamic_module_callback_http_get_header(stream: Stream, map: c_int, name: Bytes, value: *mut Bytes, index: usize, count: *mut usize) -> bool;
        fn headers_size = envoy_dynamic_module_callback_http_get_headers_size(stream: Stream, map: c_int) -> usize;
        fn get_headers = envoy_dynamic_module_callback_http_get_headers(stream: Stream, map: c_int, out: *mut Header) -> bool;
        fn add_header = envoy_dynamic_module_callback_http_add_header(stream: Stream, map: c_int, name: Bytes, value: Bytes) -> bool;
        fn set_header = envoy_dynamic_module_callback_http_set_header(stream: Stream, map: c_int, name: Bytes, value: Bytes) -> bool;
        fn body_size = envoy_dynamic_module_callback_http_get_body_size(stream: Stream, body: c_int) -> usize;
        fn chunks_size = envoy_dynamic_module_callback_http_get_body_chunks_size(stream: Stream, body: c_int) -> usize;
        fn get_chunks = envoy_dynamic_module_callback_http_get_body_chunks(stream: Stream, body: c_int, out: *mut Bytes) -> bool;
        fn append_body = envoy_dynamic_module_callback_http_append_body(stream: Stream, body: c_int, data: Bytes) -> bool;
        fn drain_body = envoy_dynamic_module_callback_http_drain_body(stream: Stream, body: c_int, count: usize) -> bool;
        fn send_response = envoy_dynamic_module_callback_http_send_response(stream: Stream, status: u32, headers: *const Header, count: usize, body: Bytes, details: Bytes);
        fn continue_decoding = envoy_dynamic_module_callback_http_filter_continue_decoding(stream: Stream);
        fn callout = envoy_dynamic_module_callback_http_filter_http_callout(stream: Stream, id: *mut u64, cluster: Bytes, headers: *const Header, count: usize, body: Bytes, timeout: u64) -> c_int;
    }

    const NONE: Bytes = Bytes { start: std::ptr::null(), length: 0 };

    fn lend(bytes: &[u8]) -> Bytes {
        Bytes { start: bytes.as_ptr().cast(), length: bytes.len() }
    }

    fn field(name: &[u8], value: &[u8]) -> Header {
        Header { name: lend(name), value: lend(value) }
    }

    /// A copy of what the proxy lends.
    ///
    /// # Safety
    /// It is lent still.
    unsafe fn copy(bytes: Bytes) -> Vec<u8> {
        if bytes.length == 0 {
            return Vec::new();
        }
        // SAFETY: the caller says that so many bytes are there.
        unsafe { std::slice::from_raw_parts(bytes.start.cast::<u8>(), bytes.length) }.to_vec()
    }

    // SAFETY, for all of these: the proxy calls hooks with a stream that is there until they return; what it is lent here lives
    // until its function returns, and what it lends is copied before anything else is asked of it.
    impl Stream {
        pub fn header(self, name: &[u8]) -> Option<Vec<u8>> {
            let mut value = NONE;
            // SAFETY: as said above.
            unsafe {
                get_header(self, REQUEST_HEADERS, lend(name), &mut value, 0, std::ptr::null_mut()).then(|| copy(value))
            }
        }

        pub fn headers(self, map: c_int) -> Vec<(Vec<u8>, Vec<u8>)> {
            // SAFETY: as said above; there is room for as many as the proxy says.
            unsafe {
                let mut all = vec![field(b"", b""); headers_size(self, map)];
                if !get_headers(self, map, all.as_mut_ptr()) {
                    all.clear();
                }
                all.into_iter().map(|it| (copy(it.name), copy(it.value))).collect()
            }
        }

        pub fn set(self, map: c_int, name: &[u8], value: Option<&[u8]>) {
            // SAFETY: as said above.
            unsafe { set_header(self, map, lend(name), value.map_or(NONE, lend)) };
        }

        pub fn add(self, map: c_int, name: &[u8], value: &[u8]) {
            // SAFETY: as said above.
            unsafe { add_header(self, map, lend(name), lend(value)) };
        }

        pub fn body_size(self, body: c_int) -> usize {
            // SAFETY: as said above.
            unsafe { body_size(self, body) }
        }

        pub fn take_body(self, body: c_int) -> Vec<u8> {
            // SAFETY: as said above; there is room for as many pieces as the proxy says.
            unsafe {
                let mut pieces = vec![NONE; chunks_size(self, body)];
                if !get_chunks(self, body, pieces.as_mut_ptr()) {
                    pieces.clear();
                }
                let mut all = Vec::with_capacity(body_size(self, body));
                for piece in pieces {
                    all.extend(copy(piece));
                }
                drain_body(self, body, all.len());
                all
            }
        }

        pub fn append(self, body: c_int, bytes: &[u8]) {
            // SAFETY: as said above.
            unsafe { append_body(self, body, lend(bytes)) };
        }

        pub fn answer(self, status: u32, headers: &[(&str, &str)], text: &[u8]) {
            let headers: Vec<Header> =
                headers.iter().map(|(name, value)| field(name.as_bytes(), value.as_bytes())).collect();
            // SAFETY: as said above.
            unsafe { send_response(self, status, headers.as_ptr(), headers.len(), lend(text), lend(b"plugin")) };
        }

        pub fn call(self, cluster: &[u8], headers: &[(&[u8], &[u8])], timeout: u64) -> bool {
            let headers: Vec<Header> = headers.iter().map(|(name, value)| field(name, value)).collect();
            let mut id = 0;
            // SAFETY: as said above.
            let started =
                unsafe { callout(self, &mut id, lend(cluster), headers.as_ptr(), headers.len(), NONE, timeout) };
            started == CALL_STARTED
        }

        pub fn go_on(self) {
            // SAFETY: as said above.
            unsafe { continue_decoding(self) };
        }
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
        c"v0.1.0".as_ptr()
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
        _: *mut c_void,
        name: Bytes,
        text: Bytes,
    ) -> *const Config {
        // SAFETY: both are lent until this returns.
        let [name, text] = [name, text].map(|it| String::from_utf8_lossy(&unsafe { copy(it) }).into_owned());
        Box::into_raw(Box::new(Config::read(name, &text)))
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(own: *mut Config) {
        // SAFETY: it came from `config_new`, and this is the last that is heard of it.
        drop(unsafe { Box::from_raw(own) });
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_on_http_filter_new(own: &Config, _: Stream) -> *const Filter {
        Filter::new(own).map_or(std::ptr::null(), |filter| Box::into_raw(Box::new(filter)))
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(own: *mut Filter) {
        // SAFETY: it came from `filter_new`, and this is the last that is heard of it.
        drop(unsafe { Box::from_raw(own) });
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
        stream: Stream,
        own: &mut Filter,
        end: bool,
    ) -> c_int {
        own.on_request_headers(stream, end)
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
        stream: Stream,
        own: &mut Filter,
        end: bool,
    ) -> c_int {
        own.on_request_body(stream, end)
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(_: Stream, _: &mut Filter) -> c_int {
        HEAD_CONTINUE
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
        stream: Stream,
        own: &mut Filter,
        end: bool,
    ) -> c_int {
        own.on_response_headers(stream, end)
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
        stream: Stream,
        own: &mut Filter,
        end: bool,
    ) -> c_int {
        own.on_response_body(stream, end)
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(_: Stream, _: &mut Filter) -> c_int {
        HEAD_CONTINUE
    }

    // SAFETY: nothing else in the module has a name of the interface.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
        stream: Stream,
        own: &mut Filter,
        _: u64,
        result: c_int,
        headers: *const Header,
        header_count: usize,
        chunks: *const Bytes,
        chunk_count: usize,
    ) {
        let answered = result == CALL_ANSWERED;
        let mut fields = Vec::new();
        let mut body = Vec::new();
        for index in 0..if answered { header_count } else { 0 } {
            // SAFETY: so many fields are lent until this returns.
            let it = unsafe { *headers.add(index) };
            // SAFETY: the same.
            fields.push(unsafe { (copy(it.name), copy(it.value)) });
        }
        for index in 0..if answered { chunk_count } else { 0 } {
            // SAFETY: so many pieces are lent until this returns.
            body.extend(unsafe { copy(*chunks.add(index)) });
        }
        own.on_answer(stream, answered.then_some((fields, body)));
    }
}
