//! The texts of errors that other tests do not cause, or that contain a value of the machine.

use tandem_core::error::{LoadError, MemoryError, RequestError, StepError};
use tandem_tests::error_texts;

#[test]
fn an_error_of_a_request_has_one_text_for_its_caller() {
    let errors = [
        RequestError::QueueFull { limit: 2 },
        RequestError::GrammarQueueFull { limit: 2 },
        RequestError::GrammarShareFull { limit: 2 },
        RequestError::DeadlineInQueue,
        RequestError::Loading,
        RequestError::Draining,
        RequestError::EngineFailed,
        RequestError::Grammar { problem: "the problem".to_owned() },
        RequestError::Malformed { problem: "the problem".to_owned() },
        RequestError::ImagesNotSupported { model: "tiny".to_owned() },
        RequestError::PromptOverLimit { field: "prompt", tokens: 9, limit: 8 },
    ];
    let texts = errors.map(|error| {
        let failure = error.failure();
        format!("{}: {}", failure.reason().name(), failure.message())
    });
    error_texts::check_rows("generate/failure", texts);
}

#[test]
fn an_error_of_a_load_has_one_text_for_the_operator() {
    let errors = [
        LoadError::Memory(MemoryError::Weights { needed: 2, available: 1 }),
        LoadError::Device { device: "cuda:9".to_owned(), problem: "the problem".to_owned() },
        LoadError::QuantizeDevice { quantize: "keep" },
        LoadError::QuantizeGpuDtype,
        StepError::NotFinite.into(),
        StepError::NoKvMemory.into(),
        StepError::Kernels(tandem_kernels::Error::Memory { bytes: Some(8) }).into(),
        LoadError::Thread(std::io::Error::other("the cause")),
        LoadError::PartOfModel { backend: "libtorch", part: "linear attention", remedy: ": use --device cpu" },
    ];
    error_texts::check_rows("load/error", errors.map(|error| format!("{}: {}", error.reason().name(), error.chain())));
}
