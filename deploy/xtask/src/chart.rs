//! `cargo xtask chart`: checks the Helm chart.

pub(crate) mod cases;
pub(crate) mod definitions;
mod golden;
mod helm;
pub(crate) mod validation;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::files::{copy, make_folder, remove_folder, write};
use crate::layout::Layout;
use cases::{stem, yaml_files};
use helm::Helm;

/// Check the Helm chart: lint it, render it with each file of values, compare the manifests with their
/// schemas and with the expected ones, and try wrong values.
///
/// `deploy/chart/ci` has the files of values, and `deploy/chart/golden` the expected manifests. A file
/// in `deploy/chart/ci/refused` must be refused, with the message of its first line. The manifests of
/// `deploy/engines` are compared with their schemas too. The schemas come
/// from a Python package and from Go modules. Needs Go, which builds Helm once into the user's cache.
/// TANDEM_HELM names another Helm. `cargo xtask test --cluster` also lets a real API server validate
/// the manifests.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the rendered manifests as the expected ones, instead of comparing them.
    #[arg(long)]
    accept: bool,
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
        manifests.push(manifest);
    }
    for file in yaml_files(&layout.root().join("deploy/engines"))? {
        let manifest = folder.join(format!("engine-{}.yaml", stem(&file)));
        copy(&file, &manifest)?;
        manifests.push(manifest);
    }
    validation::run(layout, &manifests)?;
    failures.extend(golden::unused(&helm.chart().join("golden"), &values)?);
    let refused = yaml_files(&helm.chart().join("ci/refused"))?;
    for file in &refused {
        failures.extend(helm.refuses(file)?);
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    println!("{} files of values are rendered as expected, {} wrong ones are refused", values.len(), refused.len());
    Ok(ExitCode::SUCCESS)
}
