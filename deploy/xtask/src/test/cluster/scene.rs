//! Commands on the cluster, each within the time of its step.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::images;
use super::node::Node;
use crate::layout::Layout;

/// The namespace of the release.
pub(super) const NAMESPACE: &str = "llm";
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The cluster, and the time that the current step has.
#[derive(Debug)]
pub(super) struct Scene {
    layout: Layout,
    node: Node,
    /// The program that runs tasks.
    load: PathBuf,
    deadline: Cell<Instant>,
}

impl Scene {
    pub(super) fn new(layout: &Layout, node: Node, load: PathBuf) -> Self {
        Self { layout: layout.clone(), node, load, deadline: Cell::new(Instant::now()) }
    }

    /// Starts the time of a step.
    pub(super) fn begin(&self, limit: Duration) {
        self.deadline.set(Instant::now() + limit);
    }

    fn remaining(&self) -> Result<Duration> {
        match self.deadline.get().checked_duration_since(Instant::now()) {
            Some(remaining) => Ok(remaining),
            None => bail!("the time of the step is over"),
        }
    }

    /// Waits for the node, loads the images, and makes the objects that the chart needs.
    pub(super) fn prepare(&self, archives: &[PathBuf]) -> Result<()> {
        let began = Instant::now();
        self.begin(Duration::from_secs(900));
        let prepared = self.prepare_objects(archives);
        prepared
            .with_context(|| format!("the cluster does not start\n{}\n{}", self.log("node"), self.log("kubelet")))?;
        println!("cluster: ready after {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    }

    fn prepare_objects(&self, archives: &[PathBuf]) -> Result<()> {
        self.until("the node is ready", || {
            let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
            Ok(self.kubectl(&["get", "node", "node0", "-o", ready]).is_ok_and(|status| status == "True"))
        })?;
        for archive in archives {
            self.inside(&images::import(archive))?;
        }
        let objects = self.file("objects.yaml");
        self.run("kubectl", &["apply", "-f", &objects]).map(drop)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns a file of `deploy/cluster`.
    pub(super) fn file(&self, name: &str) -> String {
        self.layout.root().join("deploy/cluster").join(name).display().to_string()
    }

    pub(super) fn chart(&self) -> String {
        self.layout.root().join("deploy/chart").display().to_string()
    }

    pub(super) fn load_program(&self) -> &Path {
        &self.load
    }

    pub(super) fn log(&self, name: &str) -> String {
        self.node.log(name)
    }

    /// Returns a command in the node's namespaces that ends with the step.
    pub(super) fn command(&self, inside: &Command) -> Result<Command> {
        Ok(self.node.command(self.remaining()?, inside))
    }

    /// Runs a command in the node's namespaces, and returns its standard output.
    ///
    /// # Errors
    /// The command fails, or the time of the step is over.
    pub(super) fn inside(&self, inside: &Command) -> Result<String> {
        let program = inside.get_program().display().to_string();
        let output = self.command(inside)?.output().with_context(|| format!("cannot run {program}"))?;
        let [text, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        if !output.status.success() {
            let arguments: Vec<_> = inside.get_args().map(|argument| argument.to_string_lossy()).collect();
            bail!("{program} {} failed: {text}{errors}", arguments.join(" "));
        }
        Ok(text)
    }

    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.inside(&command)
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run("kubectl", &[&["--namespace", NAMESPACE], arguments].concat())
    }

    pub(super) fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.run("helm", &[&["--namespace", NAMESPACE], arguments].concat())
    }

    /// Changes values of the release, as the options state, and waits until its pods are ready.
    pub(super) fn upgrade(&self, options: &[&str]) -> Result<String> {
        let chart = self.chart();
        let arguments = ["upgrade", "tandem", &chart, "--reuse-values", "--wait", "--timeout=800s"];
        self.helm(&[&arguments[..], options].concat())
    }

    /// Waits until a condition is true.
    pub(super) fn until(&self, what: &str, is_true: impl Fn() -> Result<bool>) -> Result<()> {
        while !is_true()? {
            self.remaining().with_context(|| format!("waited until {what}"))?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns the names of a tier's pods that are ready and not about to end.
    pub(super) fn ready_pods(&self, tier: &str) -> Result<Vec<String>> {
        let selector = format!("app.kubernetes.io/component={tier}");
        let columns = r#"jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}|{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
        let listed = self.kubectl(&["get", "pods", "-l", &selector, "-o", columns])?;
        let ready = listed.lines().filter_map(|line| line.strip_suffix(" |True"));
        Ok(ready.map(str::to_owned).collect())
    }

    /// Returns the addresses of a tier's pods.
    pub(super) fn addresses(&self, tier: &str) -> Result<Vec<String>> {
        let selector = format!("app.kubernetes.io/component={tier}");
        let listed = self.kubectl(&["get", "pods", "-l", &selector, "-o", "jsonpath={.items[*].status.podIP}"])?;
        Ok(listed.split_whitespace().map(str::to_owned).collect())
    }

    /// Waits until a tier has exactly this number of ready pods.
    pub(super) fn until_ready(&self, tier: &str, number: usize) -> Result<()> {
        self.until(&format!("{tier} has {number} ready pods"), || Ok(self.ready_pods(tier)?.len() == number))
    }
}
