//! gen-svc scaled on its queue: Prometheus evaluates the queries of the chart's ScaledObject, and the test
//! sets the replicas, in place of KEDA.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::test::cluster::load::{Load, SERVICE};
use crate::test::cluster::scene::Scene;

const MOST_REPLICAS: usize = 3;
const PROMETHEUS: &str = "http://127.0.0.1:9090";

/// A query of the chart, and the value that one replica may have.
#[derive(Debug)]
struct Rule {
    query: String,
    threshold: f64,
}

/// Long tasks on one replica that runs one of them at a time: the rules want more replicas, the queue
/// gets shorter, and one replica is enough after the tasks.
pub(super) fn scale(scene: &Scene) -> Result<String> {
    scene.upgrade(&["--set=generation.replicas=1", "--set=generation.flags.max-running=1"])?;
    start_prometheus(scene)?;
    let rules = rules(scene)?;
    let queued = &rules[0];
    let load = Load::start(scene, SERVICE, &["--tasks=200", "--parallel=16", "--tokens=32"])?;
    scene.until("the rules want the most replicas", || Ok(wanted(scene, &rules)? == Some(MOST_REPLICAS)))?;
    let before = value(scene, queued)?.context("the queue has a length")?;
    scene.kubectl(&["scale", "deployment/tandem-gen", &format!("--replicas={MOST_REPLICAS}")])?;
    scene.until_ready("gen-svc", MOST_REPLICAS)?;
    scene.until("the queue is shorter", || Ok(value(scene, queued)?.is_some_and(|after| after < before)))?;
    let figures = load.finish()?;
    scene.until("the rules want one replica", || Ok(wanted(scene, &rules)? == Some(1)))?;
    scene.run("sh", &["-c", "kill $(pidof prometheus)"])?;
    scene.upgrade(&["--set=generation.replicas=2", "--set=generation.flags.max-running=null", "--force-conflicts"])?;
    Ok(format!("{before} queued at 1 replica, fewer at {MOST_REPLICAS}, then 1 is enough; {figures}"))
}

/// Starts Prometheus in the node. It ends with the step.
fn start_prometheus(scene: &Scene) -> Result<()> {
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", scene.file("prometheus.yaml")));
    prometheus.args(["--storage.tsdb.path=/run/prometheus", "--web.listen-address=127.0.0.1:9090"]);
    let mut command = scene.command(&prometheus)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).context("cannot run Prometheus")
}

/// Returns the rules of the ScaledObject. The first is that of the queue.
fn rules(scene: &Scene) -> Result<Vec<Rule>> {
    let (chart, values) = (scene.chart(), scene.file("values.yaml"));
    let keda = ["kind=keda", "keda.serverAddress=http://prometheus:9090"];
    let [kind, address] = keda.map(|value| format!("--set=generation.autoscaling.{value}"));
    let only = "--show-only=templates/autoscaling-generation.yaml";
    let object = scene.helm(&["template", "tandem", &chart, "--values", &values, &kind, &address, only])?;
    let texts = |key: &'static str| {
        let found = object.lines().filter_map(move |line| line.trim().strip_prefix(key));
        found.map(|text| text.trim_matches(['\'', '"']).to_owned())
    };
    let rules = texts("query: ").zip(texts("threshold: "));
    let rules = rules.map(|(query, threshold)| Ok(Rule { query, threshold: threshold.parse()? }));
    let rules = rules.collect::<Result<Vec<_>>>()?;
    rules.first().context("the ScaledObject has no query")?;
    Ok(rules)
}

/// Returns the number of replicas that the rules want: as an autoscaler does, the most of all. None if
/// Prometheus has no value yet.
fn wanted(scene: &Scene, rules: &[Rule]) -> Result<Option<usize>> {
    let mut most = 1;
    for rule in rules {
        let Some(value) = value(scene, rule)? else { return Ok(None) };
        most = most.max((value / rule.threshold).ceil() as usize);
    }
    Ok(Some(most.min(MOST_REPLICAS)))
}

/// Returns the value of a rule's query, or None if Prometheus does not listen or has no value.
fn value(scene: &Scene, rule: &Rule) -> Result<Option<f64>> {
    let Ok(printed) = scene.run("promtool", &["query", "instant", PROMETHEUS, &rule.query]) else { return Ok(None) };
    let value = printed.split("=> ").nth(1).and_then(|rest| rest.split(' ').next());
    Ok(value.map(str::parse).transpose()?)
}
