//! Every one of ten thousand keys finds the host that Envoy 1.40 sends it to: `envoy-hosts.txt` has a line a cluster, with
//! a letter for each key, `a` for the first host. Envoy got the keys in the header that its route hashed.

use std::sync::Arc;

use postrider_model::{
    Address, Balancing, Endpoint, EndpointHealth, HashFunction, HashKeys, HealthRules, LoadBalancing, Locality, Maglev,
    RingHash,
};
use postrider_upstream::{Choice, Cluster, Endpoints, Random, hash};

const HOSTS: &str = include_str!("envoy-hosts.txt");
const WEIGHTS: [u32; 19] = [1, 1, 1, 2, 3, 5, 1, 1, 10, 1, 1, 1, 4, 1, 1, 7, 1, 1, 1];

/// What a cluster says about its endpoints.
#[derive(Default, Clone, Copy)]
struct Says {
    weights: bool,
    names: bool,
    keys: bool,
    localities: bool,
}

fn endpoints(says: Says) -> Endpoints {
    let endpoint = |(index, weight): (u8, u32)| {
        let (zone, of_zone) = match index {
            0..7 => ("z0", 1),
            7..12 => ("z1", 3),
            _ => ("z2", 0),
        };
        let place = Locality { zone: zone.into(), weight: of_zone, ..Locality::default() };
        Arc::new(Endpoint {
            address: Address::Tcp(([127, 0, 0, index + 2], 24399).into()),
            additional: Vec::new(),
            hostname: if says.names { format!("host-{index}.test") } else { String::new() },
            weight: if says.weights { weight } else { 1 },
            priority: 0,
            health: EndpointHealth::Healthy,
            leaving: None,
            check: None,
            place: says.localities.then(|| Arc::new(place)),
            hash_key: says.keys.then(|| format!("key-{index}")),
            metadata: None,
        })
    };
    Endpoints((0..).zip(WEIGHTS).map(endpoint).collect())
}

fn ring(min_size: u64, max_size: u64, function: HashFunction, hostnames: bool) -> LoadBalancing {
    let keys = HashKeys { hostnames, balance_factor: None };
    LoadBalancing::RingHash(RingHash { min_size, max_size, function, keys })
}

fn maglev(table_size: u64) -> LoadBalancing {
    LoadBalancing::Maglev(Maglev { table_size, keys: HashKeys::default() })
}

#[test]
fn every_key_finds_the_host_that_envoy_sends_it_to() {
    const LARGEST: u64 = 8 << 20;
    let usual = || ring(1024, LARGEST, HashFunction::XxHash, false);
    let nothing = Says::default();
    let weights = Says { weights: true, ..nothing };
    let localities = Says { localities: true, ..weights };
    let clusters = [
        ("ring", usual(), nothing),
        ("ring_weights", usual(), weights),
        ("ring_murmur", ring(5000, LARGEST, HashFunction::Murmur2, false), weights),
        ("ring_small", ring(1, 100, HashFunction::XxHash, false), weights),
        ("ring_keys", usual(), Says { keys: true, ..nothing }),
        ("ring_localities", usual(), localities),
        ("ring_names", ring(1024, LARGEST, HashFunction::XxHash, true), Says { names: true, ..weights }),
        ("maglev", maglev(65_537), nothing),
        ("maglev_weights", maglev(65_537), weights),
        ("maglev_small", maglev(251), weights),
        ("maglev_localities", maglev(65_537), localities),
        ("maglev_keys", maglev(65_537), Says { keys: true, ..weights }),
    ];
    let lines: Vec<(&str, &str)> = HOSTS.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(lines.iter().map(|(name, _)| *name).collect::<Vec<_>>(), clusters.each_ref().map(|(name, ..)| *name));
    let random = Random::new(1);
    for ((name, policy, says), (_, hosts)) in clusters.into_iter().zip(lines) {
        let balancing = Balancing { policy, by_locality: says.localities, ..Balancing::default() };
        let cluster = Cluster::<()>::new(balancing, HealthRules::default(), &endpoints(says), &random);
        assert_eq!(hosts.len(), 10_000);
        for (key, letter) in hosts.bytes().enumerate() {
            let hash = hash::xxh64(format!("key-{key}").as_bytes(), 0);
            let host = cluster.pick_for(Choice { hash: Some(hash), ..Choice::default() }, &random).unwrap();
            let expected = Address::Tcp(([127, 0, 0, letter - b'a' + 2], 24399).into());
            assert_eq!(host.endpoint.address, expected, "{name}: key-{key}");
        }
    }
}
