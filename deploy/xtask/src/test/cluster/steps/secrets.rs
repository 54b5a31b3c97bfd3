//! TLS and tokens from Secrets.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::test::cluster::load::Load;
use crate::test::cluster::scene::Scene;

/// The folder of the certificates and tokens, as the node sees it.
const FOLDER: &str = "/run/cluster/secrets";
const SERVICE: &str = "https://tandem-render:50051";
const CA: &str = "--ca=/run/cluster/secrets/ca.crt";
const TOKENS: &str = "--token-file=/run/cluster/secrets/tokens";
const TIERS: [(&str, &str, u16); 2] = [("render-svc", "render", 50_051), ("gen-svc", "gen", 50_052)];

/// Installs the release again, with TLS on both tiers, mTLS between them, and tokens.
pub(super) fn install(scene: &Scene) -> Result<String> {
    scene.helm(&["uninstall", "tandem", "--wait", "--timeout=600s"])?;
    scene.run(&scene.file("secrets.sh"), &[FOLDER])?;
    let (chart, values, secure) = (scene.chart(), scene.file("values.yaml"), scene.file("secure.yaml"));
    let values = ["--values", &values, "--values", &secure];
    scene.helm(&[&["install", "tandem", &chart, "--wait", "--timeout=800s"][..], &values].concat())?;
    scene.helm(&["test", "tandem", "--timeout=60s"])?;
    let figures = client(scene, &[SERVICE, CA, TOKENS, "--tasks=20"])?;
    for (missing, wanted, options) in
        [("token", "missing header `authorization", [SERVICE, CA]), ("authority", "certificate", [SERVICE, TOKENS])]
    {
        match client(scene, &options) {
            Ok(_) => bail!("a task without {missing} succeeded"),
            Err(error) if !format!("{error:#}").contains(wanted) => {
                return Err(error.context(format!("a task without {missing} failed for another reason")));
            }
            Err(_) => {}
        }
    }
    Ok(format!("`helm test` succeeds; {figures}; refused without a token, and without the authority"))
}

/// New certificates in the Secrets reach every pod while tasks run. No pod restarts.
pub(super) fn rotate(scene: &Scene) -> Result<String> {
    let load = Load::start(scene, SERVICE, &[CA, TOKENS, "--tasks=200", "--tokens=64"])?;
    let pods = TIERS.map(|(tier, ..)| scene.ready_pods(tier)).into_iter().collect::<Result<Vec<_>>>()?;
    scene.run(&scene.file("secrets.sh"), &[FOLDER])?;
    for (tier, name, port) in TIERS {
        let serial = scene.run("cat", &[&format!("{FOLDER}/{name}.serial")])?;
        let addresses = scene.addresses(tier)?;
        scene.until(&format!("{tier} presents its new certificate"), || {
            let mut presented = addresses.iter().map(|address| presented(scene, address, port));
            Ok(presented.all(|found| found.is_ok_and(|found| found == serial)))
        })?;
    }
    let figures = load.finish()?;
    let after = TIERS.map(|(tier, ..)| scene.ready_pods(tier)).into_iter().collect::<Result<Vec<_>>>()?;
    if pods != after {
        bail!("pods were replaced: {pods:?}, {after:?}");
    }
    Ok(format!("every pod presents its new certificate; {figures}"))
}

fn client(scene: &Scene, options: &[&str]) -> Result<String> {
    let mut client = Command::new(scene.load_program());
    scene.inside(client.args(options)).context("the client failed")
}

/// Returns the serial number of the certificate that a pod presents.
fn presented(scene: &Scene, address: &str, port: u16) -> Result<String> {
    let connect =
        format!("openssl s_client -connect {address}:{port} < /dev/null 2> /dev/null | openssl x509 -noout -serial");
    scene.run("sh", &["-c", &connect])
}
