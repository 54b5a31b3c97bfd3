//! The division of a model's layers among devices. The numbers of GPUs are made up here.

use gen_svc::load;
use tandem_common::status::Reason;
use tandem_core::engine::{Config, DeviceList, GpuMemory};
use tandem_core::error::{LoadError, MemoryError};
use tandem_core::models::DeviceMemory;
use tandem_tests::{Random, default_model, error_texts};
use tandem_torch::load::{KvDemand, require_all};
use tandem_torch::{Costs, LayerCosts, Libtorch, Placement};
use tch::Device;

const MIB: u64 = 1 << 20;

/// Returns layers of 100 bytes, with 1 byte of keys and values per position.
fn costs(layers: usize) -> Costs {
    let layer = LayerCosts { weights: 100, pairs: 1, source: None };
    Costs { first: 0, layers: vec![layer; layers], last: 0, tied: 0 }
}

fn devices(free: &[u64]) -> Vec<(Device, u64)> {
    free.iter().enumerate().map(|(index, &free)| (Device::Cuda(index), free)).collect()
}

/// Returns the number of layers on each device.
#[track_caller]
fn divided(costs: &Costs, free: &[u64]) -> Vec<usize> {
    let placement = Placement::divide(costs, &devices(free)).expect("enough layers");
    let parts = placement.parts();
    let ends: Vec<_> = parts.iter().map(|part| part.layers.end).collect();
    let starts: Vec<_> = parts.iter().map(|part| part.layers.start).collect();
    assert_eq!((starts[0], ends[ends.len() - 1]), (0, costs.layers.len()));
    assert_eq!(starts[1..], ends[..ends.len() - 1], "the parts are adjacent");
    assert!(parts.iter().zip(devices(free)).all(|(part, (device, _))| part.device == device));
    parts.iter().map(|part| part.layers.len()).collect()
}

// ---- the division ----

#[test]
fn layers_are_divided_by_the_memory_of_each_device() {
    assert_eq!(divided(&costs(8), &[10_000]), [8]);
    assert_eq!(divided(&costs(8), &[10_000, 10_000]), [4, 4]);
    assert_eq!(divided(&costs(8), &[30_000, 10_000]), [6, 2]);
    assert_eq!(divided(&costs(12), &[10_000, 20_000, 30_000]), [2, 4, 6]);
    assert_eq!(divided(&costs(3), &[1 << 50, 1, 1]), [1, 1, 1], "every device has a layer");
}

#[test]
fn the_ends_of_a_model_count_on_the_first_and_the_last_device() {
    assert_eq!(divided(&Costs { first: 600, ..costs(8) }, &[1_000, 1_000]), [2, 6]);
    assert_eq!(divided(&Costs { last: 600, ..costs(8) }, &[1_000, 1_000]), [6, 2]);
    assert_eq!(divided(&Costs { tied: 600, ..costs(8) }, &[1_000, 1_000]), [6, 2], "the copy of the embeddings");
}

/// The first two layers have most of the keys and values.
#[test]
fn keys_and_values_count_beside_the_weights() {
    let mut costs = costs(8);
    costs.layers[..2].iter_mut().for_each(|layer| layer.pairs = 10);
    assert_eq!(divided(&costs, &[10_000, 10_000]), [1, 7]);
}

#[test]
fn a_layer_is_on_the_device_of_the_keys_and_values_that_it_uses() {
    let mut costs = costs(8);
    for layer in [5, 6, 7] {
        costs.layers[layer] = LayerCosts { pairs: 0, source: Some(3), ..costs.layers[layer] };
    }
    assert_eq!(divided(&costs, &[10_000, 10_000]), [3, 5]);
    assert_eq!(divided(&costs, &[90_000, 10_000]), [3, 5], "layers 3 to 7 stay together");
    assert_eq!(divided(&costs, &[10_000; 4]), [1, 1, 1, 5]);
    let error = Placement::divide(&costs, &devices(&[10_000; 5])).expect_err("too many");
    assert!(matches!(error, LoadError::TooManyDevices { devices: 5, limit: 4 }), "{error}");
}

#[test]
fn a_model_is_not_divided_among_more_devices_than_layers() {
    let error = Placement::divide(&costs(2), &devices(&[10_000; 3])).expect_err("too many");
    assert_eq!(error.reason(), Reason::SettingsConflict);
    assert!(matches!(error, LoadError::TooManyDevices { devices: 3, limit: 2 }), "{error}");
    error_texts::check("load/too-many-devices", error);
}

/// Returns every division of `layers` layers among `devices` devices, as numbers of layers.
fn all_divisions(layers: usize, devices: usize) -> Vec<Vec<usize>> {
    if devices == 1 {
        return vec![vec![layers]];
    }
    let rest = |first: usize| {
        let rest = all_divisions(layers - first, devices - 1).into_iter();
        rest.map(move |rest| [vec![first], rest].concat())
    };
    (1..=layers + 1 - devices).flat_map(rest).collect()
}

/// Returns the positions that the device with the fewest has room for, or the bytes that are missing on the
/// device where most are. None if a layer is not where the keys and values are that it uses.
fn quality(costs: &Costs, free: &[u64], division: &[usize]) -> Option<i64> {
    let (mut start, mut least) = (0, i64::MAX);
    for (i, count) in division.iter().enumerate() {
        let layers = &costs.layers[start..start + count];
        if layers.iter().any(|layer| layer.source.is_some_and(|source| source < start)) {
            return None;
        }
        let mut weights: u64 = layers.iter().map(|layer| layer.weights).sum();
        weights += if i == 0 { costs.first } else { 0 };
        weights += if i + 1 == division.len() { costs.last } else { 0 };
        weights += if i + 1 == division.len() && i > 0 { costs.tied } else { 0 };
        let pairs: u64 = layers.iter().map(|layer| layer.pairs).sum();
        let left = free[i] as i64 - weights as i64;
        least = least.min(if left < 0 { left } else { left / pairs.max(1) as i64 });
        start += count;
    }
    Some(least)
}

fn random_costs(random: &mut Random) -> Costs {
    let count = 1 + random.below(9) as usize;
    let mut layer = |i: usize| {
        let source = (i > 0 && random.below(5) == 0).then(|| random.below(i as u64) as usize);
        LayerCosts { weights: random.below(300), pairs: random.below(4), source }
    };
    let layers = (0..count).map(&mut layer).collect();
    Costs { first: random.below(500), layers, last: random.below(500), tied: random.below(500) }
}

#[test]
fn no_other_division_has_more_positions() {
    let mut random = Random(7);
    let mut divided = 0;
    for _ in 0..2_000 {
        let costs = random_costs(&mut random);
        let free: Vec<u64> = (0..1 + random.below(4)).map(|_| random.below(2_000)).collect();
        let all = if free.len() > costs.layers.len() { vec![] } else { all_divisions(costs.layers.len(), free.len()) };
        let best = all.iter().filter_map(|division| quality(&costs, &free, division)).max();
        let found = Placement::divide(&costs, &devices(&free)).ok().map(|placement| {
            let division: Vec<_> = placement.parts().iter().map(|part| part.layers.len()).collect();
            quality(&costs, &free, &division).expect("layers are with their keys and values")
        });
        assert_eq!(found, best, "{costs:?}, {free:?}");
        divided += usize::from(found.is_some());
    }
    assert!(divided > 1_000, "only {divided} models were divided");
}

// ---- memory ----

fn gpus(free: &[u64]) -> Vec<GpuMemory> {
    let gpu = |(index, &free): (usize, &u64)| GpuMemory {
        device: format!("cuda:{index}"),
        share: 1.0,
        memory: DeviceMemory { free: free * MIB, total: 1_000 * MIB },
    };
    free.iter().enumerate().map(gpu).collect()
}

fn check_memory(costs: &Costs, free: &[u64], kv: KvDemand) -> Result<(), LoadError> {
    let gpus = gpus(free);
    let devices: Vec<_> = gpus.iter().enumerate().map(|(index, gpu)| (Device::Cuda(index), gpu.left())).collect();
    require_all(&gpus, costs, &Placement::divide(costs, &devices).expect("enough layers"), kv)
}

/// Returns eight layers of 100 MiB, whose positions have a byte each.
fn large_costs() -> Costs {
    let layer = LayerCosts { weights: 100 * MIB, pairs: 1, source: None };
    Costs { first: 50 * MIB, layers: vec![layer; 8], last: 50 * MIB, tied: 0 }
}

#[test]
fn weights_that_no_division_fits_are_refused_with_the_numbers_of_each_device() {
    let check = |free: &[u64]| check_memory(&large_costs(), free, KvDemand::Positions(0));
    check(&[550, 350]).expect("5 and 3 layers fit");
    check(&[900]).expect("one device has all");
    assert!(matches!(check(&[899]), Err(LoadError::Memory(MemoryError::Gpu { .. }))));
    let error = check(&[550, 349]).expect_err("one card is too small");
    assert_eq!(error.reason(), Reason::MemoryTooSmall);
    assert!(matches!(&error, LoadError::Memory(MemoryError::Gpus { needs, .. }) if needs.len() == 2), "{error:?}");
    error_texts::check("load/gpu-memories", error);
}

/// A device has the keys and values of its layers.
#[test]
fn weights_that_leave_no_room_for_the_kv_cache_are_refused() {
    let check = |free: &[u64], kv| check_memory(&large_costs(), free, kv);
    // Two MiB in each layer.
    let demands = [KvDemand::Positions(2 * MIB as usize), KvDemand::Bytes(16 * MIB)];
    let names = ["load/gpu-memories/least", "load/gpu-memories/configured"];
    for (kv, name) in demands.into_iter().zip(names) {
        check(&[560, 356], kv).expect("5 and 3 layers fit");
        check(&[916], kv).expect("one device has all");
        let error = check(&[560, 355], kv).expect_err("the KV cache does not fit");
        assert!(
            matches!(&error, LoadError::Memory(MemoryError::Gpus { needs, .. }) if needs[1].kv.bytes() == 6 * MIB),
            "{error:?}"
        );
        assert_eq!(error.reason(), Reason::MemoryTooSmall);
        error_texts::check(name, error);
    }
    let [least, configured] = demands.map(|kv| check(&[915], kv).expect_err("one device is too small"));
    error_texts::check("load/gpu-memory/least", least);
    error_texts::check("load/gpu-memory/configured", configured);
}

/// A position has eight bytes.
#[test]
fn the_demanded_kv_cache_is_the_configured_or_the_smallest() {
    let demand = |kv_memory, context| {
        let config = Config { kv_memory, max_running: 5, ..Config::new(default_model()) };
        KvDemand::of(&config, context, &large_costs())
    };
    assert_eq!(demand(None, 1 << 17), KvDemand::Positions(256));
    assert_eq!(demand(None, 100), KvDemand::Positions(100));
    assert_eq!(demand(Some(7000), 1000), KvDemand::Bytes(7000));
    assert_eq!(demand(Some(1 << 40), 1000), KvDemand::Bytes(5 * 1000 * 8), "the size for outputs at full length");
}

#[test]
fn a_configured_kv_cache_must_fit_on_every_gpu() {
    let check = |free: &[u64], block: &[u64], mib: u64| GpuMemory::require_kv(&gpus(free), block, mib * MIB);
    check(&[600], &[24], 600).expect("it fits");
    check(&[300, 100], &[30, 10], 400).expect("the second GPU has a quarter");
    check(&[300, 0], &[30, 0], 300).expect("the second GPU has no keys and values");
    let error = check(&[300, 99], &[30, 10], 400).expect_err("the second GPU has 99 MiB");
    assert_eq!(error.reason(), Reason::KvMemoryTooSmall);
    error_texts::check("load/gpu-kv-memory", error);
}

#[test]
fn the_gpu_with_the_fewest_blocks_decides_the_size_of_the_kv_cache() {
    let bytes = |free: &[u64], block: &[u64]| GpuMemory::kv_bytes(&gpus(free), block);
    assert_eq!(bytes(&[600], &[24]), 600 * MIB);
    assert_eq!(bytes(&[300, 300], &[10, 10]), 600 * MIB);
    assert_eq!(bytes(&[300, 100], &[10, 10]), 200 * MIB, "the second GPU has 100 MiB");
    assert_eq!(bytes(&[300, 100], &[30, 10]), 400 * MIB);
    assert_eq!(bytes(&[300, 100], &[30, 0]), 300 * MIB, "the second GPU has no keys and values");
}

// ---- settings ----

#[test]
fn a_list_of_devices_has_different_gpus_or_cpus_only() {
    let parse = |text: &str| text.parse::<DeviceList>();
    for (text, shown) in [
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:1,cuda:0", "cuda:1,cuda:0"),
        ("cpu-torch,cpu-torch", "cpu-torch,cpu-torch"),
    ] {
        assert_eq!(parse(text).expect(text).to_string(), shown);
    }
    let invalid =
        ["", "gpu", "cuda:", "cuda:-1", "cuda:0,", "cuda:0,cuda:1,cuda", "cpu-torch,cuda:0", "cuda:0,cpu", "cpu,cpu"];
    error_texts::check_rows("args/device", invalid.map(|text| parse(text).expect_err(text)));
}

#[test]
fn several_devices_need_enough_layers() {
    let start = |devices: &str| {
        let config = Config {
            devices: devices.parse().expect("devices"),
            kv_memory: Some(64 << 20),
            ..Config::new(default_model())
        };
        load::start(config, &Libtorch).map(|(engine, _)| engine.model().device.clone())
    };
    let error = start(&["cpu-torch"; 100].join(",")).expect_err("too many");
    assert!(matches!(error, LoadError::TooManyDevices { devices: 100, .. }), "{error}");
    assert_eq!(start("cpu-torch,cpu-torch").expect("loads"), "cpu-torch,cpu-torch");
}
