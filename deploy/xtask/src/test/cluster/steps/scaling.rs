//! Replicas that are added and removed while tasks run.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::test::cluster::load::{Load, SERVICE, under_load};
use crate::test::cluster::scene::{NAMESPACE, Scene};

/// By hand: 1, 3, 1, and then the number of before.
pub(super) fn generation(scene: &Scene) -> Result<String> {
    scale(scene, 1)?;
    let measured = under_load(scene, || {
        let (up, down) = (scale(scene, 3)?, scale(scene, 1)?);
        Ok(format!("1, 3 and 1 replicas, found by each pod of render-svc {up:.1} s and {down:.1} s later"))
    });
    scene.upgrade(&["--set=generation.replicas=2", "--force-conflicts"])?;
    measured
}

/// Sets the number of replicas. Returns the seconds from their readiness until render-svc has found them.
fn scale(scene: &Scene, number: usize) -> Result<f64> {
    scene.kubectl(&["scale", "deployment/tandem-gen", &format!("--replicas={number}")])?;
    scene.until_ready("gen-svc", number)?;
    let ready = Instant::now();
    scene.until(&format!("render-svc has found {number} replicas"), || {
        let pods = scene.ready_pods("render-svc")?;
        let found = pods.iter().map(|pod| healthy_replicas(scene, pod)).collect::<Result<Vec<_>>>()?;
        Ok(found.iter().all(|&found| found == number))
    })?;
    Ok(ready.elapsed().as_secs_f64())
}

/// Returns the number of healthy replicas of gen-svc in the metrics of a pod of render-svc.
fn healthy_replicas(scene: &Scene, pod: &str) -> Result<usize> {
    let page = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9464/proxy/metrics");
    let page = scene.run("kubectl", &["get", "--raw", &page])?;
    let is_wanted = |line: &&str| line.starts_with("tandem_generation_replicas{") && line.contains("\"healthy\"");
    let value = page.lines().find(is_wanted).and_then(|line| line.rsplit(' ').next());
    Ok(value.with_context(|| format!("{pod} does not export its replicas"))?.parse()?)
}

/// By the HorizontalPodAutoscaler on CPU: no pod is lost when it is turned on; up under load, where a
/// rollback keeps the number, and down after it.
pub(super) fn render(scene: &Scene) -> Result<String> {
    let before = scene.ready_pods("render-svc")?;
    autoscale(scene, before.len())?;
    let after = scene.ready_pods("render-svc")?;
    if after != before {
        bail!("turning autoscaling on replaced pods: {before:?}, {after:?}");
    }
    autoscale(scene, 1)?;
    let name = ["get", "hpa", "tandem-render", "-o"];
    let status = |path: &str| scene.kubectl(&[&name[..], &[&format!("jsonpath={{.status.{path}}}")]].concat());
    scene.until("the autoscaler has removed idle replicas", || Ok(status("desiredReplicas")? == "1"))?;
    scene.until_ready("render-svc", 1)?;
    // From here on, a release leaves the number to the autoscaler, and the rollback needs an older one.
    autoscale(scene, 1)?;
    autoscale(scene, 1)?;
    let load = Load::start(scene, SERVICE, &["--tasks=200", "--parallel=6", "--tokens=1"])?;
    scene.until("the autoscaler adds replicas", || Ok(status("desiredReplicas")? == "3"))?;
    scene.until_ready("render-svc", 3)?;
    let use_of_cpu = status("currentMetrics[0].resource.current.averageUtilization")?;
    scene.helm(&["rollback", "tandem", "--wait", "--timeout=120s"])?;
    scene.until_ready("render-svc", 3).context("the rollback changed the number of replicas")?;
    let figures = load.finish()?;
    scene.until("the autoscaler removes replicas", || Ok(status("desiredReplicas")? == "1"))?;
    scene.until_ready("render-svc", 1)?;
    scene
        .upgrade(&["--set=render.autoscaling.enabled=false", "--force-conflicts"])
        .context("cannot turn autoscaling off")?;
    Ok(format!("the {} pods remain; 1, 3 and 1 replicas, {use_of_cpu} % of the request at 3; {figures}", before.len()))
}

fn autoscale(scene: &Scene, fewest: usize) -> Result<()> {
    let values = ["enabled=true", &format!("minReplicas={fewest}"), "maxReplicas=3", "targetCPU=20"];
    let options = values.map(|value| format!("--set=render.autoscaling.{value}"));
    scene.upgrade(&options.each_ref().map(String::as_str)).map(drop)
}
