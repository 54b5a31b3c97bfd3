//! The load of a server, from its Prometheus metrics (docs.vllm.ai, "Metrics").

use crate::protocol::Load;

/// Returns the load in a page of metrics.
pub(super) fn load(page: &str) -> Load {
    let info = page.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap_or_default();
    let setting = |name: &str| {
        let value = info.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.and_then(|(value, _)| value.parse::<usize>().ok()).unwrap_or(0)
    };
    let ranks = values(page, "vllm:kv_cache_usage_perc").count().max(1);
    Load {
        waiting: sum(page, "vllm:num_requests_waiting") as usize,
        running: sum(page, "vllm:num_requests_running") as usize,
        kv_used: Some(sum(page, "vllm:kv_cache_usage_perc") / ranks as f64),
        kv_blocks: setting("num_gpu_blocks").saturating_mul(ranks),
        kv_block_size: setting("block_size"),
        preemptions: sum(page, "vllm:num_preemptions_total") as u64,
        steps: 0,
    }
}

/// Returns the sum over all ranks.
fn sum(page: &str, name: &str) -> f64 {
    values(page, name).sum()
}

fn values<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    let of = move |line: &str| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once(' ')?.1.parse().ok();
    page.lines().filter_map(of)
}
