//! The schema of Envoy's configuration: descriptors of Envoy 1.40, xDS, Istio, the contrib extensions and our own.
//!
//! What it is for: [`pool`] builds a [`DescriptorPool`] with exactly the files that some types need; [`known_type`] and
//! [`type_names`] answer from an index without building anything.
//!
//! What it must never do: keep a pool alive. A pool is megabytes and only needed while a configuration is loaded or
//! printed; whoever asks for one drops it (and every message made from it) afterwards.
//!
//! Who calls it: the Envoy dialect's loader, and its `unpack`, which keeps the small pools of a few types.

use std::collections::BTreeSet;

use prost_reflect::DescriptorPool;

/// All files' descriptors, each compressed by itself, one behind the other.
static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Per file a line `offset packed-length length dependency…`.
static FILES: &str = include_str!(concat!(env!("OUT_DIR"), "/files.txt"));

/// Per message a line `full.name file`, sorted.
static TYPES: &str = include_str!(concat!(env!("OUT_DIR"), "/types.txt"));

/// Whether a message of this full name exists in the schema.
pub fn known_type(name: &str) -> bool {
    file_of(name).is_some()
}

/// The full names of all messages, sorted: candidates for "did you mean".
pub fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name)
}

/// A pool with the files that define `types` and everything these files import. Unknown names are skipped. Extensions
/// of options (`validate.rules`, `udpa.annotations.sensitive`, …) are there because their users import them.
///
/// Takes a few milliseconds and a few megabytes, which go when the pool and all descriptors from it are dropped.
pub fn pool<'n>(types: impl IntoIterator<Item = &'n str>) -> DescriptorPool {
    let files: Vec<&str> = FILES.lines().collect();
    let mut builder = Builder { files: &files, done: BTreeSet::new(), pool: DescriptorPool::new() };
    for number in types.into_iter().filter_map(file_of) {
        builder.add(number);
    }
    builder.pool
}

/// A pool with every file. For tools and tests; loading a configuration takes [`pool`].
pub fn full_pool() -> DescriptorPool {
    pool(type_names())
}

struct Builder<'f> {
    /// Lines of [`FILES`].
    files: &'f [&'static str],
    done: BTreeSet<usize>,
    pool: DescriptorPool,
}

impl Builder<'_> {
    /// Adds a file behind its imports. One file at a time keeps the peak small: the archive is never unpacked whole.
    fn add(&mut self, number: usize) {
        if !self.done.insert(number) {
            return;
        }
        let Some(line) = self.files.get(number) else { return };
        let mut numbers = line.split(' ').map_while(|number| number.parse::<usize>().ok());
        let (Some(offset), Some(packed), Some(length)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return;
        };
        for dependency in numbers {
            self.add(dependency);
        }
        // What is embedded was made by this crate's build and is decoded whole by its tests: failing here is a build fault.
        let packed = DESCRIPTORS.get(offset..offset + packed).expect("the embedded index fits its archive");
        let bytes = zstd::bulk::decompress(packed, length).expect("the embedded descriptors are compressed");
        self.pool.decode_file_descriptor_proto(bytes.as_slice()).expect("the embedded descriptors are consistent");
    }
}

/// The line number of the file that defines a message.
fn file_of(name: &str) -> Option<usize> {
    let (mut low, mut high) = (0, TYPES.len());
    // Invariant: both ends stand at the start of a line (or at the end of the text), and the line looked for is between.
    while low < high {
        let middle = low + (high - low) / 2;
        let start = TYPES.get(low..middle)?.rfind('\n').map_or(low, |at| low + at + 1);
        let end = TYPES.get(start..)?.find('\n').map_or(TYPES.len(), |at| start + at);
        let (found, file) = TYPES.get(start..end)?.split_once(' ')?;
        match name.cmp(found) {
            std::cmp::Ordering::Equal => return file.parse().ok(),
            std::cmp::Ordering::Less => high = start,
            std::cmp::Ordering::Greater => low = end + 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_and_strangers_are_not() {
        assert!(type_names().count() > 1500);
        for name in type_names() {
            assert!(known_type(name), "{name}");
        }
        for name in ["", "a", "zzz", "envoy.config.cluster.v3.Cluste", "envoy.config.cluster.v3.Cluster2", "envoy"] {
            assert!(!known_type(name), "{name}");
        }
    }

    #[test]
    fn the_whole_schema_decodes_with_its_rules() {
        let pool = full_pool();
        let missing: Vec<&str> = type_names().filter(|name| pool.get_message_by_name(name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
        for name in [
            "udpa.type.v1.TypedStruct",
            "xds.type.v3.TypedStruct",
            "xds.type.matcher.v3.IPMatcher",
            "envoy.extensions.filters.http.golang.v3alpha.ConfigsPerRoute",
            "stats.PluginConfig",
            "proxy.filters.http.rider.v3alpha1.RouteFilterConfig",
            "postrider.filters.http.plugin.v1.PluginPerRoute",
            "postrider.filters.http.shadow.v3.ShadowPerRoute",
            "postrider.filters.http.tap.v3.Tap",
            "postrider.filters.network.shadow.v3.Shadow",
        ] {
            assert!(known_type(name), "{name}");
        }
    }

    /// What Lua filters and Rider plugins are configured by, field by field.
    #[test]
    fn plugins_have_the_fields_of_their_wire_formats() {
        let fields = [
            (
                "envoy.extensions.filters.http.lua.v3.Lua",
                "1 inline_code, 2 source_codes, 3 default_source_code, 4 stat_prefix, 5 clear_route_cache, \
                 6 filter_context, 7 package_paths, 8 package_cpaths, 9 shared_vm_id",
            ),
            (
                "envoy.extensions.filters.http.lua.v3.LuaPerRoute",
                "1 disabled, 2 name, 3 source_code, 4 filter_context, 5 package_paths, 6 package_cpaths, \
                 7 shared_vm_id",
            ),
            ("proxy.filters.http.rider.v3alpha1.FilterConfig", "1 plugin"),
            (
                "proxy.filters.http.rider.v3alpha1.PluginConfig",
                "1 name, 2 config, 3 vm_config, 4 code, 5 log_file, 6 allow_no_route",
            ),
            ("proxy.filters.http.rider.v3alpha1.VmConfig", "1 vm_id, 2 package_path"),
            ("proxy.filters.http.rider.v3alpha1.LogFile", "1 path"),
            ("proxy.filters.http.rider.v3alpha1.RouteFilterConfig", "1 plugins"),
            ("proxy.filters.http.rider.v3alpha1.RoutePluginConfig", "1 name, 2 config"),
            (
                "postrider.filters.http.plugin.v1.Plugin",
                "1 name, 2 version, 3 runtime, 4 code, 5 config, 6 config_schema, 7 phases, 8 on_error, 9 budget, \
                 10 circuit, 11 clusters, 12 options",
            ),
            ("postrider.filters.http.plugin.v1.PluginPerRoute", "1 config, 2 disabled"),
        ];
        let pool = pool(fields.map(|(name, _)| name));
        for (name, wanted) in fields {
            let message = pool.get_message_by_name(name).unwrap();
            let found: Vec<String> =
                message.fields().map(|field| format!("{} {}", field.number(), field.name())).collect();
            assert_eq!(found.join(", "), wanted, "{name}");
        }
    }

    #[test]
    fn a_pool_holds_what_its_types_need_and_no_more() {
        let pool = pool(["envoy.extensions.filters.http.router.v3.Router", "no.such.Type"]);
        let router = pool.get_message_by_name("envoy.extensions.filters.http.router.v3.Router").unwrap();
        let rules = pool.get_extension_by_name("validate.rules").unwrap();
        let field = router.get_field_by_name("strict_check_headers").unwrap();
        assert!(field.options().has_extension(&rules));
        assert!(pool.get_message_by_name("envoy.extensions.filters.http.lua.v3.Lua").is_none());
    }
}
