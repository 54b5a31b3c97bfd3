//! Replicas that are added and removed while tasks run.

use anyhow::{Context, Result};

use crate::test::cluster::load::{Load, SERVICE, under_load};
use crate::test::cluster::scene::{NAMESPACE, Scene};

/// By hand: 1, 3, 1, and then the number of before.
pub(super) fn generation(scene: &Scene) -> Result<String> {
    let replicas = |number: usize| {
        scene.upgrade(&[&format!("--set=generation.replicas={number}")])?;
        scene.until_ready("gen-svc", number)
    };
    replicas(1)?;
    let measured = under_load(scene, || {
        replicas(3)?;
        replicas(1)?;
        Ok("1, 3 and 1 replicas".to_owned())
    });
    replicas(2)?;
    measured
}

/// By the HorizontalPodAutoscaler on CPU: up under load, and down after it.
pub(super) fn render(scene: &Scene) -> Result<String> {
    let scaling = ["enabled=true", "minReplicas=1", "maxReplicas=3", "targetCPU=20"];
    let values = scaling.map(|value| format!("--set=render.autoscaling.{value}"));
    scene.upgrade(&values.each_ref().map(String::as_str))?;
    let name = ["get", "hpa", "tandem-render", "-o"];
    let status = |path: &str| scene.kubectl(&[&name[..], &[&format!("jsonpath={{.status.{path}}}")]].concat());
    scene.until("the autoscaler has removed idle replicas", || Ok(status("desiredReplicas")? == "1"))?;
    scene.until_ready("render-svc", 1)?;
    let load = Load::start(scene, SERVICE, &["--tasks=200", "--parallel=6", "--tokens=1"])?;
    scene.until("the autoscaler adds replicas", || Ok(status("desiredReplicas")? == "3"))?;
    scene.until_ready("render-svc", 3)?;
    let use_of_cpu = status("currentMetrics[0].resource.current.averageUtilization")?;
    let figures = load.finish()?;
    scene.until("the autoscaler removes replicas", || Ok(status("desiredReplicas")? == "1"))?;
    scene.until_ready("render-svc", 1)?;
    scene
        .upgrade(&["--set=render.autoscaling.enabled=false", "--force-conflicts"])
        .context("cannot turn autoscaling off")?;
    Ok(format!("1, 3 and 1 replicas, {use_of_cpu} % of the request at 3; {figures}"))
}

/// The targets of the chart's autoscaling per replica: requests in the queue, and the share of the KV
/// cache that running requests hold.
const QUEUED: (&str, f64) = ("tandem_engine_queued", 4.0);
const KV_USE: (&str, f64) = ("tandem_engine_kv_use_ratio", 0.8);
const MOST_REPLICAS: usize = 3;

/// By the rule of the chart's autoscaling. This test scrapes the replicas and evaluates the rule, in
/// place of Prometheus with KEDA or its adapter.
pub(super) fn queue(scene: &Scene) -> Result<String> {
    scene.upgrade(&["--set=generation.replicas=1", "--set=generation.flags.max-running=1"])?;
    let load = Load::start(scene, SERVICE, &["--tasks=200", "--parallel=16", "--tokens=32"])?;
    scene.until("the rule wants the most replicas", || Ok(wanted(scene)? == MOST_REPLICAS))?;
    let before = total(scene, QUEUED.0)?;
    scene.kubectl(&["scale", "deployment/tandem-gen", &format!("--replicas={MOST_REPLICAS}")])?;
    scene.until_ready("gen-svc", MOST_REPLICAS)?;
    scene.until("the queue is shorter", || Ok(total(scene, QUEUED.0)? < before))?;
    let after = total(scene, QUEUED.0)?;
    let figures = load.finish()?;
    scene.until("the rule wants one replica", || Ok(wanted(scene)? == 1))?;
    scene.upgrade(&["--set=generation.replicas=2", "--set=generation.flags.max-running=null", "--force-conflicts"])?;
    Ok(format!("{before} queued at 1 replica, {after} at {MOST_REPLICAS}, then 1 is enough; {figures}"))
}

/// Returns the number of replicas that the rule wants: as an autoscaler does, the most of both metrics.
fn wanted(scene: &Scene) -> Result<usize> {
    let wanted = [QUEUED, KV_USE].map(|(metric, target)| Ok((total(scene, metric)? / target).ceil() as usize));
    let wanted = wanted.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(wanted.into_iter().max().unwrap_or_default().clamp(1, MOST_REPLICAS))
}

/// Returns the sum of a metric over the ready replicas.
fn total(scene: &Scene, metric: &str) -> Result<f64> {
    let mut total = 0.0;
    for pod in scene.ready_pods("gen-svc")? {
        let page = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9464/proxy/metrics");
        let page = scene.run("kubectl", &["get", "--raw", &page])?;
        let value = page.lines().find(|line| line.split(['{', ' ']).next() == Some(metric));
        let value = value.and_then(|line| line.rsplit(' ').next());
        total += value.with_context(|| format!("{pod} does not export {metric}"))?.parse::<f64>()?;
    }
    Ok(total)
}
