//! The steps of the test.

mod disruption;
mod failure;
mod policies;
mod release;
mod scaling;
mod secrets;
mod upgrade;

use std::time::{Duration, Instant};

use anyhow::Result;

use super::scene::Scene;

/// A step: its name, its limit in seconds, and its code, which returns figures.
type Step = (&'static str, u64, fn(&Scene) -> Result<String>);

/// The steps that run with any filter: the others need the release.
const INSTALLATION: usize = 2;

const STEPS: [Step; 15] = [
    ("a wrong value is refused", 20, release::wrong_value),
    ("helm install", 240, release::install),
    ("tasks through the ClusterIP", 120, release::tasks),
    ("both tiers are rolled under load", 300, upgrade::roll),
    ("a version that never gets ready is rolled back", 240, upgrade::never_ready),
    ("pods of gen-svc are killed under load", 300, failure::kill),
    ("pods of gen-svc are deleted by force under load", 300, failure::delete),
    ("a stuck replica is left", 300, failure::stuck),
    ("a drain respects the disruption budget", 240, disruption::drain),
    ("gen-svc is scaled 1, 3, 1 under load", 300, scaling::generation),
    ("render-svc is scaled on CPU", 300, scaling::render),
    ("gen-svc is scaled on its queue", 300, scaling::queue),
    ("a stranger is kept out by NetworkPolicies", 180, policies::enforce),
    ("TLS and tokens from Secrets", 300, secrets::install),
    ("certificates are rotated under load with TLS", 300, secrets::rotate),
];

/// Runs the steps whose names contain `filter`, even after a failed one, unless
/// the release is not installed. Returns the names of
/// the failed steps.
pub(super) fn run(scene: &Scene, filter: &str) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (number, (name, limit, step)) in STEPS.into_iter().enumerate() {
        if number >= INSTALLATION && !name.contains(filter) {
            continue;
        }
        scene.begin(Duration::from_secs(limit));
        let began = Instant::now();
        let result = step(scene);
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(measured) => println!("ok      {name} ({seconds:.1} s): {measured}"),
            Err(error) => {
                println!("FAILED  {name} ({seconds:.1} s): {error:#}");
                failed.push(name);
                if number < INSTALLATION {
                    break;
                }
            }
        }
    }
    failed
}
