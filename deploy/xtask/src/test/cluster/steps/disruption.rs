//! A drain of the node, which the disruption budget slows.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::test::cluster::load::under_load;
use crate::test::cluster::scene::{NAMESPACE, Scene};

/// The only node is drained of gen-svc. The first pod is evicted. The second eviction is refused until
/// the successor of the first is ready, which needs the node to be open again.
pub(super) fn drain(scene: &Scene) -> Result<String> {
    under_load(scene, || {
        let before = scene.ready_pods("gen-svc")?;
        let mut drain = Command::new("kubectl");
        drain.args(["drain", "node0", "--pod-selector=app.kubernetes.io/component=gen-svc", "--timeout=200s"]);
        let mut command = scene.command(&drain)?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot run kubectl")?;
        scene.until_ready("gen-svc", before.len() - 1)?;
        let waiting = ["get", "pods", "--field-selector=status.phase=Pending", "-o", "name"];
        scene.until("a successor waits for a node", || Ok(scene.kubectl(&waiting)?.contains("gen")))?;
        if scene.ready_pods("gen-svc")?.len() != before.len() - 1 {
            bail!("the budget admitted a second eviction");
        }
        scene.kubectl(&["uncordon", "node0"])?;
        let output = child.wait_with_output().context("cannot wait for kubectl")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("kubectl drain failed: {errors}");
        }
        let refused = errors.lines().filter(|line| line.contains("disruption budget")).count();
        if refused == 0 {
            bail!("no eviction in {NAMESPACE} was refused: {errors}");
        }
        scene.until_ready("gen-svc", before.len())?;
        let after = scene.ready_pods("gen-svc")?;
        if let Some(pod) = after.iter().find(|pod| before.contains(pod)) {
            bail!("{pod} was not evicted");
        }
        Ok(format!("{} pods evicted, one after the other; {refused} evictions refused", before.len()))
    })
}
