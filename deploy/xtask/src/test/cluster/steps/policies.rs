//! The chart's NetworkPolicies, which `deploy/cluster/programs/policies` enforces in place of a network plugin.

use anyhow::{Result, bail};

use crate::test::cluster::scene::Scene;

/// The pods of `callers.yaml`, and whether the policies admit their calls.
const CALLERS: [(&str, bool); 4] =
    [("friend-render", true), ("friend-gen", false), ("stranger-render", false), ("stranger-gen", false)];

/// Without enforcement, every pod reaches both tiers. With it, only the pods of the release's namespace
/// reach render-svc, and none of these pods reaches gen-svc.
pub(super) fn enforce(scene: &Scene) -> Result<String> {
    for (caller, is_reached) in call(scene, false)? {
        if !is_reached {
            bail!("{caller} does not reach its tier without enforcement");
        }
    }
    let called = call(scene, true);
    let removed = scene.run("nft", &["delete", "table", "ip", "policies"]);
    for (caller, is_reached) in called? {
        if CALLERS.contains(&(&caller, !is_reached)) {
            bail!(
                "{caller} {} with enforcement",
                if is_reached { "reaches its tier" } else { "does not reach its tier" }
            );
        }
    }
    removed?;
    Ok("a pod of the namespace reaches render-svc; it and strangers reach nothing else".to_owned())
}

/// Runs the pods of `callers.yaml`. Returns for each whether it reached its tier.
fn call(scene: &Scene, is_enforced: bool) -> Result<Vec<(String, bool)>> {
    let callers = scene.file("callers.yaml");
    if is_enforced {
        scene.run("policies", &[])?;
    }
    scene.run("kubectl", &["apply", "-f", &callers])?;
    if is_enforced {
        scene.until("the callers have addresses", || Ok(column(scene, "podIP")?.len() == CALLERS.len()))?;
        scene.run("policies", &[])?;
    }
    let is_over = |(_, phase): &(String, String)| phase == "Succeeded" || phase == "Failed";
    scene.until("the callers have ended", || {
        Ok(column(scene, "phase")?.iter().filter(|it| is_over(it)).count() == CALLERS.len())
    })?;
    let phases = column(scene, "phase")?;
    scene.run("kubectl", &["delete", "-f", &callers, "--wait"])?;
    Ok(phases.into_iter().map(|(name, phase)| (name, phase == "Succeeded")).collect())
}

/// Returns a field of the status of each caller that has it.
fn column(scene: &Scene, field: &str) -> Result<Vec<(String, String)>> {
    let columns = format!(r#"jsonpath={{range .items[*]}}{{.metadata.name}} {{.status.{field}}}{{"\n"}}{{end}}"#);
    let listed = scene.run("kubectl", &["get", "pods", "-A", "-l", "tandem/caller=test", "-o", &columns])?;
    let found = listed.lines().filter_map(|line| line.split_once(' ')).filter(|(_, value)| !value.is_empty());
    Ok(found.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}
