//! The texts of errors that other tests do not cause, or that contain a value of the machine.

use gen_svc::error::Error;
use tandem_tests::error_texts;

#[test]
fn an_error_of_a_request_has_one_text_for_its_caller() {
    let errors = [
        Error::QueueFull { limit: 2 },
        Error::GrammarQueueFull { limit: 2 },
        Error::GrammarShareFull { limit: 2 },
        Error::DeadlineInQueue,
        Error::Loading,
        Error::Draining,
        Error::LoadCancelled,
        Error::EngineFailed,
        Error::NotFinite,
        Error::Grammar { problem: "the problem".to_owned() },
        Error::Malformed { problem: "the problem".to_owned() },
        Error::ImagesNotSupported { model: "tiny".to_owned() },
        Error::PromptOverLimit { field: "prompt", tokens: 9, limit: 8 },
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
        Error::Memory { needed: 2, available: 1 },
        Error::Device { device: "cuda:9".to_owned(), problem: "the problem".to_owned() },
        Error::QuantizeDevice { quantize: "keep" },
        Error::QuantizeGpuDtype,
        Error::NotFinite,
        Error::NoKvMemory,
        Error::Kernels(tandem_kernels::Error::Memory { bytes: Some(8) }),
        Error::Thread(std::io::Error::other("the cause")),
    ];
    error_texts::check_rows("load/error", errors.map(|error| format!("{}: {}", error.reason().name(), error.chain())));
}
