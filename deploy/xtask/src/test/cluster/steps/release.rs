//! The release: its values, its installation, its first tasks.

use std::process::Command;

use anyhow::{Result, bail};

use crate::test::cluster::load::SERVICE;
use crate::test::cluster::scene::Scene;

/// A value of the wrong type is refused by the schema, with the value's name and the expected type.
pub(super) fn wrong_value(scene: &Scene) -> Result<String> {
    let (chart, values) = (scene.chart(), scene.file("values.yaml"));
    let wrong = ["install", "tandem", &chart, "--values", &values, "--set-string", "render.replicas=two"];
    let Err(error) = scene.helm(&wrong) else { bail!("render.replicas=two was accepted") };
    let message = format!("{error:#}");
    let wanted = |line: &&str| line.contains("/render/replicas") && line.contains("want integer");
    match message.lines().find(wanted) {
        Some(line) => Ok(line.trim().to_owned()),
        None => bail!("the message does not help: {message}"),
    }
}

pub(super) fn install(scene: &Scene) -> Result<String> {
    let (chart, values) = (scene.chart(), scene.file("values.yaml"));
    scene.helm(&["install", "tandem", &chart, "--values", &values, "--wait", "--timeout=800s"])?;
    scene.helm(&["test", "tandem", "--timeout=60s"])?;
    let pods = scene.ready_pods("render-svc")?.len() + scene.ready_pods("gen-svc")?.len();
    let policies = scene.kubectl(&["get", "networkpolicy", "-o", "name"])?;
    Ok(format!(
        "{pods} pods are ready, `helm test` succeeds, {} NetworkPolicies are accepted",
        policies.lines().count()
    ))
}

pub(super) fn tasks(scene: &Scene) -> Result<String> {
    let mut client = Command::new(scene.load_program());
    client.args([SERVICE, "--tasks=40"]);
    scene.inside(&client)
}
