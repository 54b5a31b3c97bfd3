//! `cargo xtask chart`: checks the Helm chart.

mod cases;
mod definitions;
mod golden;
mod helm;
mod validation;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::files::{make_folder, remove_folder, write};
use crate::layout::Layout;
use cases::{stem, yaml_files};
use helm::Helm;

/// Check the Helm chart: lint it, render it with each file of values, compare, and try wrong values.
///
/// `deploy/chart/ci` has the files of values, and `deploy/chart/golden` the expected manifests. A file
/// in `deploy/chart/ci/refused` must be refused, with the message of its first line. Needs Go, which
/// builds Helm once into `.tandem/helm`. TANDEM_HELM names another Helm.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the rendered manifests as the expected ones, instead of comparing them.
    #[arg(long)]
    accept: bool,

    /// Validate every manifest with a real API server and its Pod Security Standards too.
    ///
    /// Go builds the API server and etcd once into `.tandem/apiserver`. This takes about a quarter of
    /// an hour on two cores, 5 GB of disk while it runs, and 0.1 GB after it. The definitions of other
    /// projects' objects come from their Go modules. TANDEM_APISERVER names a program that is built.
    #[arg(long)]
    server: bool,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let helm = Helm::ensure(layout)?;
    let folder = layout.root().join("target/chart");
    remove_folder(&folder)?;
    make_folder(&folder)?;
    let values = yaml_files(&helm.chart().join("ci"))?;
    let (mut manifests, mut failures) = (Vec::new(), Vec::new());
    for file in &values {
        let name = stem(file);
        helm.lint(file)?;
        let manifest = folder.join(format!("{name}.yaml"));
        write(&manifest, &helm.template(file)?)?;
        failures.extend(golden::check(&helm.chart().join("golden"), &name, &manifest, args.accept)?);
        manifests.push((file.clone(), manifest));
    }
    failures.extend(golden::unused(&helm.chart().join("golden"), &values)?);
    let refused = yaml_files(&helm.chart().join("ci/refused"))?;
    for file in &refused {
        failures.extend(helm.refuses(file)?);
    }
    if args.server {
        validation::run(layout, &manifests)?;
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    println!("{} files of values are rendered as expected, {} wrong ones are refused", values.len(), refused.len());
    Ok(ExitCode::SUCCESS)
}
