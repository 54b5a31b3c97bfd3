//! The manifests of the chart's examples, which the API server validates.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::chart::cases::{stem, yaml_files};
use crate::chart::definitions;
use crate::chart::validation::defined;
use crate::files::{make_folder, read, write};
use crate::test::cluster::scene::Scene;

/// The API server creates every object as a dry run, with strict field validation, in a namespace with
/// the restricted standard. It warns of the pods that break the standard: only those with a folder of
/// the node. An unknown field is refused.
pub(super) fn validate(scene: &Scene) -> Result<String> {
    for file in definitions::ensure(scene.layout())? {
        scene.run("kubectl", &["apply", "--server-side", "-f", &file.display().to_string()])?;
    }
    scene.run("kubectl", &["wait", "--for=condition=Established", "customresourcedefinition", "--all"])?;
    let files = yaml_files(&scene.layout().root().join("deploy/chart/ci"))?;
    let mut objects = 0;
    for values in &files {
        let output = apply(scene, &render(scene, values)?)?;
        let (breaks, may_break) = (output.contains("would violate PodSecurity"), read(values)?.contains("host://"));
        if breaks != may_break {
            bail!("{}: expected {may_break} for a broken standard in {output}", values.display());
        }
        objects += output.matches("(server dry run)").count();
    }
    let wrong = render(scene, &files[0])?;
    write(&wrong, &read(&wrong)?.replace("periodSeconds:", "periodSecond:"))?;
    match apply(scene, &wrong) {
        Err(error) if format!("{error:#}").contains("unknown field") => {}
        other => bail!("an unknown field was not refused: {other:?}"),
    }
    Ok(format!("{objects} objects of {} files of values accepted, an unknown field refused", files.len()))
}

/// Writes the manifests of a file of values, and returns their file.
fn render(scene: &Scene, values: &Path) -> Result<PathBuf> {
    let (chart, folder) = (scene.chart(), scene.layout().root().join("target/cluster"));
    make_folder(&folder)?;
    let manifest = folder.join(format!("{}.yaml", stem(values)));
    write(&manifest, &scene.helm(&["template", "tandem", &chart, "--values", &values.display().to_string()])?)?;
    defined(&manifest)
}

/// Returns the output of kubectl with its warnings.
fn apply(scene: &Scene, manifest: &Path) -> Result<String> {
    let apply = "kubectl apply --namespace dry-run --dry-run=server --validate=strict --filename \"$0\" 2>&1";
    scene.run("sh", &["-c", apply, &manifest.display().to_string()])
}
