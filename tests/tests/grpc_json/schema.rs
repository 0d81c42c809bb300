//! The schema of the tests, compiled, and messages of it.

use postrider_tests::kit::TempDir;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use protox::Compiler;
use serde_json::Value;

/// `google.api.HttpBody` as its users know it.
const HTTP_BODY: &str = r#"
syntax = "proto3";
package google.api;
import "google/protobuf/any.proto";
message HttpBody {
  string content_type = 1;
  bytes data = 2;
  repeated google.protobuf.Any extensions = 3;
}
"#;

pub struct Schema {
    pub set: Vec<u8>,
    pool: DescriptorPool,
}

impl Schema {
    pub fn shop() -> Schema {
        Schema::compile(include_str!("shop.proto"))
    }

    pub fn compile(text: &str) -> Schema {
        let folder = TempDir::new();
        let api = folder.path().join("google/api");
        std::fs::create_dir_all(&api).unwrap();
        std::fs::write(api.join("httpbody.proto"), HTTP_BODY).unwrap();
        folder.write("schema.proto", text);
        let vendored = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/config/envoy-proto/proto");
        let mut compiler = Compiler::new([folder.path(), vendored.as_ref()]).unwrap();
        compiler.include_imports(true);
        if let Err(error) = compiler.open_file("schema.proto") {
            panic!("{error:?}");
        }
        let set = compiler.encode_file_descriptor_set();
        Schema { pool: DescriptorPool::decode(set.as_slice()).unwrap(), set }
    }

    /// A message's bytes from its JSON.
    pub fn encode(&self, kind: &str, json: &Value) -> Vec<u8> {
        let descriptor = self.pool.get_message_by_name(kind).unwrap_or_else(|| panic!("no {kind}"));
        DynamicMessage::deserialize(descriptor, json).unwrap().encode_to_vec()
    }

    /// A message's JSON from its bytes.
    pub fn decode(&self, kind: &str, bytes: &[u8]) -> Value {
        let descriptor = self.pool.get_message_by_name(kind).unwrap_or_else(|| panic!("no {kind}"));
        serde_json::to_value(DynamicMessage::decode(descriptor, bytes).unwrap()).unwrap()
    }
}
