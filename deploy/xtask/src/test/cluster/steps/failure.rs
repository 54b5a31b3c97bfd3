//! Replicas of gen-svc that fail while tasks run.

use anyhow::{Context, Result};

use crate::test::cluster::load::{Load, SERVICE, under_load};
use crate::test::cluster::scene::Scene;

/// The number of replicas of gen-svc.
const REPLICAS: usize = 2;
/// How often a replica fails.
const FAILURES: usize = 4;

/// SIGKILL ends the process of a replica. The kubelet restarts it.
pub(super) fn kill(scene: &Scene) -> Result<String> {
    under_load(scene, || {
        for _ in 0..FAILURES {
            let before = restarts(scene)?;
            scene.run("kill", &["-KILL", &process(scene)?])?;
            scene.until("the container is restarted", || Ok(restarts(scene)? > before))?;
            scene.until_ready("gen-svc", REPLICAS)?;
        }
        Ok(format!("{FAILURES} processes killed and restarted"))
    })
}

/// The API server forgets a pod at once, and the kubelet kills it.
pub(super) fn delete(scene: &Scene) -> Result<String> {
    under_load(scene, || {
        for _ in 0..FAILURES {
            let pods = scene.ready_pods("gen-svc")?;
            let pod = pods.first().context("gen-svc has no ready pod")?;
            scene.kubectl(&["delete", "pod", pod, "--grace-period=0", "--force"])?;
            scene.until_ready("gen-svc", REPLICAS)?;
        }
        Ok(format!("{FAILURES} pods deleted and replaced"))
    })
}

/// A stopped process accepts connections and never answers. Its tasks resume on the other replica, and
/// the liveness probe restarts it.
pub(super) fn stuck(scene: &Scene) -> Result<String> {
    let load = Load::start(scene, SERVICE, &["--tasks=200", "--parallel=4", "--tokens=64"])?;
    let before = restarts(scene)?;
    scene.run("kill", &["-STOP", &process(scene)?])?;
    scene.until("the container is restarted", || Ok(restarts(scene)? > before))?;
    scene.until_ready("gen-svc", REPLICAS)?;
    Ok(format!("a replica stopped and restarted; {}", load.finish()?))
}

/// Returns the process id of the oldest replica, as the node sees it. pidof prints it last.
fn process(scene: &Scene) -> Result<String> {
    let processes = scene.run("pidof", &["gen-svc"])?;
    Ok(processes.split_whitespace().last().context("gen-svc does not run")?.to_owned())
}

/// Returns how often the kubelet has restarted containers of gen-svc.
fn restarts(scene: &Scene) -> Result<u64> {
    let counts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let counts = scene.kubectl(&["get", "pods", "-l", "app.kubernetes.io/component=gen-svc", "-o", counts])?;
    counts.split_whitespace().map(|count| Ok(count.parse::<u64>()?)).sum()
}
