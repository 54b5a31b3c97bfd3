//! A drain of the node, which the disruption budget slows.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::test::cluster::load::under_load;
use crate::test::cluster::scene::Scene;

/// The only node is drained of gen-svc. The first pod is evicted. The second eviction is refused until
/// the successor of the first is ready, which needs the node to be open again.
pub(super) fn drain(scene: &Scene) -> Result<String> {
    under_load(scene, || {
        let before = scene.ready_pods("gen-svc")?;
        let drain = start(scene)?;
        let evicted = one_is_evicted(scene, before.len());
        scene.kubectl(&["uncordon", "node0"])?;
        evicted?;
        let refused = finish(drain)?;
        scene.until_ready("gen-svc", before.len())?;
        match scene.ready_pods("gen-svc")?.iter().find(|pod| before.contains(pod)) {
            Some(pod) => bail!("{pod} was not evicted"),
            None => Ok(format!("{} pods evicted, one after the other; {refused} evictions refused", before.len())),
        }
    })
}

fn start(scene: &Scene) -> Result<Child> {
    let mut drain = Command::new("kubectl");
    drain.args(["drain", "node0", "--pod-selector=app.kubernetes.io/component=gen-svc", "--timeout=800s"]);
    let mut command = scene.command(&drain)?;
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot run kubectl")
}

/// Waits until one of the pods is evicted and its successor waits for a node.
fn one_is_evicted(scene: &Scene, pods: usize) -> Result<()> {
    scene.until_ready("gen-svc", pods - 1)?;
    let waiting = ["get", "pods", "--field-selector=status.phase=Pending", "-o", "name"];
    scene.until("a successor waits for a node", || Ok(scene.kubectl(&waiting)?.contains("gen")))?;
    if scene.ready_pods("gen-svc")?.len() != pods - 1 {
        bail!("the budget admitted a second eviction");
    }
    Ok(())
}

/// Waits for the drain. Returns the number of refused evictions.
///
/// # Errors
/// The drain fails, or no eviction was refused.
fn finish(drain: Child) -> Result<usize> {
    let output = drain.wait_with_output().context("cannot wait for kubectl")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.lines().filter(|line| line.contains("disruption budget")).count() {
        _ if !output.status.success() => bail!("kubectl drain failed: {errors}"),
        0 => bail!("no eviction was refused: {errors}"),
        refused => Ok(refused),
    }
}
