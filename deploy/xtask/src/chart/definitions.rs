//! The definitions of other projects' objects, from their Go modules.

use std::path::PathBuf;

use anyhow::Result;

use crate::layout::Layout;
use crate::setup::go;

/// A module: its version, its digest, and its files of definitions.
struct Definitions {
    module: &'static str,
    digest: &'static str,
    files: &'static [&'static str],
}

const ALL: [Definitions; 6] = [
    Definitions {
        module: "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        digest: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        files: &[
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ],
    },
    Definitions {
        module: "github.com/kedacore/keda/v2@v2.21.0",
        digest: "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        files: &["config/crd/bases/keda.sh_scaledobjects.yaml"],
    },
    Definitions {
        module: "github.com/cert-manager/cert-manager@v1.21.2",
        digest: "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
        files: &["deploy/crds/cert-manager.io_certificates.yaml"],
    },
    Definitions {
        module: "sigs.k8s.io/gateway-api@v1.6.3",
        digest: "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc=",
        files: &["config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml"],
    },
    Definitions {
        module: "sigs.k8s.io/lws@v0.7.0",
        digest: "h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=",
        files: &["config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"],
    },
    Definitions {
        module: "github.com/ray-project/kuberay/ray-operator@v1.5.0",
        digest: "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=",
        files: &["config/crd/bases/ray.io_rayclusters.yaml"],
    },
];

/// Downloads the definitions, and returns their paths.
pub(crate) fn ensure(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for definitions in &ALL {
        let folder = go::module(layout, definitions.module, definitions.digest)?;
        files.extend(definitions.files.iter().map(|file| folder.join(file)));
    }
    Ok(files)
}
