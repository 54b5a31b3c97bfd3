//! Towers compute an image in slices of any size with the same features.

use std::path::{Path, PathBuf};

use tandem_core::media::read_processor;
use tandem_core::models::{self, Features};
use tandem_images::{Limits, PreparedCache, PreparedImage};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests_full::image_model::{ImageModel, bitmap};
use tandem_tests_full::vision_oracle::{self, FOLDERS};
use tandem_torch::{TorchTarget, TorchTower, TowerRun};

/// The largest difference of a feature, for sums in another order.
const TOLERANCE: f32 = 1e-4;

fn tower(folder: &Path) -> TorchTower {
    let artifacts = Artifacts::load(folder).expect("artifacts");
    let file = models::open(&artifacts).expect("weights");
    TorchTower::open(&file, TorchTarget::REFERENCE).expect("it loads").expect("a tower")
}

/// Returns the features, and the number of slices.
fn features(folder: &Path, image: &PreparedImage, patches: usize) -> (Features, usize) {
    let mut tower = tower(folder);
    tower.set_slice_patches(patches);
    finish(tower.start(image).expect("it starts"), &tower)
}

/// Computes the slices that are left. Returns the features, and the number of these slices.
fn finish(mut run: TowerRun, tower: &TorchTower) -> (Features, usize) {
    let mut slices = 0;
    loop {
        slices += 1;
        if let Some(features) = run.advance(tower).expect("it computes") {
            return (features, slices);
        }
    }
}

fn check(folder: &Path) {
    let processor = read_processor(folder).expect("a processor");
    for (width, height) in [(120, 70), (33, 140)] {
        let image = bitmap(width, height, 5);
        let image = PreparedCache::new(0).prepare(&processor, &image, &Limits::default()).expect("prepared").0;
        let (whole, fewest) = features(folder, &image, 1 << 20);
        for patches in [1, 7] {
            let (sliced, slices) = features(folder, &image, patches);
            let what = format!("{}, {width} x {height}, slices of {patches}", folder.display());
            assert!(slices > fewest, "{what}: {slices} slices");
            let rows = |features: &Features| [vec![features.rows.clone()], features.deep.clone()].concat().concat();
            let (found, expected) = (rows(&sliced), rows(&whole));
            assert_eq!(found.len(), expected.len(), "{what}");
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert!((found - expected).abs() <= TOLERANCE, "{what}, {i}: {found} instead of {expected}");
            }
        }
    }
}

#[test]
fn features_do_not_depend_on_the_slices() {
    for model in ImageModel::all().into_values() {
        check(model.folder().path());
    }
}

#[test]
fn features_of_the_oracle_do_not_depend_on_the_slices() {
    let Some(oracle) = vision_oracle::folder() else { return };
    let folders: Vec<PathBuf> = FOLDERS.iter().map(|name| oracle.join("models").join(name)).collect();
    folders.iter().for_each(|folder| check(folder));
}
