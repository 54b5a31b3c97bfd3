//! Upgrades of both tiers while tasks run.

use anyhow::{Result, bail};

use crate::test::cluster::load::under_load;
use crate::test::cluster::scene::Scene;

/// Every pod of both tiers is replaced, twice.
pub(super) fn roll(scene: &Scene) -> Result<String> {
    under_load(scene, || {
        let before = pods(scene)?;
        for round in ["first", "second"] {
            let [render, generation] =
                ["render", "generation"].map(|tier| format!("--set={tier}.podAnnotations.round={round}"));
            scene.upgrade(&[&render, &generation])?;
        }
        let after = pods(scene)?;
        match after.iter().find(|pod| before.contains(pod)) {
            Some(pod) => bail!("{pod} was not replaced"),
            None => Ok(format!("{} pods replaced twice", before.len())),
        }
    })
}

/// The model of the new version does not exist, so its pods never get ready.
pub(super) fn never_ready(scene: &Scene) -> Result<String> {
    under_load(scene, || {
        let (before, chart) = (pods(scene)?, scene.chart());
        let arguments = ["upgrade", "tandem", &chart, "--reuse-values", "--set", "model=pvc://models/missing.gguf"];
        let options = ["--wait", "--timeout=20s", "--rollback-on-failure"];
        let Err(error) = scene.helm(&[&arguments[..], &options[..]].concat()) else {
            bail!("an upgrade to a missing model succeeded")
        };
        let message = format!("{error:#}");
        if !message.contains("rolled back") {
            bail!("the upgrade was not rolled back: {message}");
        }
        scene.until("only the old pods remain", || Ok(pods(scene)? == before))?;
        Ok(format!("rolled back, the {} old pods remained", before.len()))
    })
}

/// Returns the ready pods of both tiers, sorted.
fn pods(scene: &Scene) -> Result<Vec<String>> {
    let mut pods = [scene.ready_pods("render-svc")?, scene.ready_pods("gen-svc")?].concat();
    pods.sort();
    Ok(pods)
}
