//! libtorch: architectures, devices, the sampler of device rows, images.

mod architectures;
mod buckets;
mod device_rows;
mod device_sampling;
mod failures;
mod flash;
mod gpu_memory;
mod image_architectures;
mod image_keys;
mod image_prompts;
mod images;
mod placement;
mod resumed;
mod tiny_llama;
mod tower_slices;
mod vision;
