//! The steps of the test.

mod disruption;
mod failure;
mod manifests;
mod policies;
mod queue;
mod release;
mod scaling;
mod secrets;
mod upgrade;

use std::time::{Duration, Instant};

use anyhow::Result;

use super::scene::Scene;

/// A step: its name, and its code, which returns figures.
type Step = (&'static str, fn(&Scene) -> Result<String>);

/// The time of a step. A step takes a minute on an idle machine; this only ends one that hangs.
const LIMIT: Duration = Duration::from_secs(1200);

/// The steps that run with any filter: the others need the release.
const INSTALLATION: usize = 2;

const STEPS: [Step; 16] = [
    ("a wrong value is refused", release::wrong_value),
    ("helm install", release::install),
    ("tasks through the ClusterIP", release::tasks),
    ("the manifests of all examples are valid", manifests::validate),
    ("both tiers are rolled under load", upgrade::roll),
    ("a version that never gets ready is rolled back", upgrade::never_ready),
    ("pods of gen-svc are killed under load", failure::kill),
    ("pods of gen-svc are deleted by force under load", failure::delete),
    ("a stuck replica is left", failure::stuck),
    ("a drain respects the disruption budget", disruption::drain),
    ("gen-svc is scaled 1, 3, 1 under load", scaling::generation),
    ("render-svc is scaled on CPU", scaling::render),
    ("gen-svc is scaled on its queue", queue::scale),
    ("a stranger is kept out by NetworkPolicies", policies::enforce),
    ("TLS and tokens from Secrets", secrets::install),
    ("certificates are rotated under load with TLS", secrets::rotate),
];

/// Runs the steps whose names contain `filter`, even after a failed one, unless the release is not
/// installed. Returns the names of the failed steps.
pub(super) fn run(scene: &Scene, filter: &str) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (number, (name, step)) in STEPS.into_iter().enumerate() {
        if number >= INSTALLATION && !name.contains(filter) {
            continue;
        }
        scene.begin(LIMIT);
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
