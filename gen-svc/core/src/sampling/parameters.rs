//! The sampling parameters: a row for each. Structs, validation, defaults, the conversion of
//! protobuf and JSON, and the help text follow from the rows.

use std::fmt::{self, Display};

use tandem_common::field::Path;
use tandem_common::random::random_u64;
use tandem_model_files::artifacts::SamplingDefaults;

use crate::error::{LoadError, RequestError};

/// Calls a macro with all rows. A row has a name, a type, a neutral value, a range, and the default
/// of the model's files.
#[macro_export]
macro_rules! with_sampling_parameters {
    ($callback:ident) => {
        $callback! {
            /// Divides the logits. 0 selects the most likely token.
            temperature: f32 = 1.0, Range::from_to(0.0, 100.0),
                |model| if model.do_sample == Some(false) { Some(0.0) } else { model.temperature };
            /// Keeps the K most likely tokens, and ties with the last of them. 0 keeps all.
            top_k: u32 = 0, Range::ANY, |model| model.top_k;
            /// Keeps the smallest set of most likely tokens whose probabilities reach this. 1 keeps
            /// all.
            top_p: f32 = 1.0, Range::above(0.0, 1.0), |model| model.top_p;
            /// Drops tokens whose probability is below this share of the most likely token's
            /// probability. 0 keeps all.
            min_p: f32 = 0.0, Range::from_to(0.0, 1.0), |model| model.min_p;
            /// Keeps the tokens whose information is nearest to the expected information, until
            /// their probabilities reach this. 1 keeps all.
            typical_p: f32 = 1.0, Range::above(0.0, 1.0), |model| model.typical_p;
            /// Divides positive and multiplies negative logits of tokens in prompt and output. 1
            /// changes nothing.
            repetition_penalty: f32 = 1.0, Range::above(0.0, 100.0), |model| model.repetition_penalty;
            /// Subtracted from the logits of tokens in the output. 0 changes nothing.
            presence_penalty: f32 = 0.0, Range::from_to(-2.0, 2.0), |_| None;
            /// Subtracted from the logits of tokens in the output, once per occurrence. 0 changes
            /// nothing.
            frequency_penalty: f32 = 0.0, Range::from_to(-2.0, 2.0), |_| None;
        }
    };
}

macro_rules! define {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $neutral:expr, $range:expr, $default:expr;)+) => {
        /// The sampling parameters that a request or a model sets.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct SamplingOptions {
            $($(#[$doc])+ pub $name: Option<$type>,)+
            /// Added to the logits of these tokens.
            pub logit_bias: Vec<(u32, f32)>,
            /// The number of outputs for the prompt.
            pub n: Option<u32>,
            /// The seed of the random numbers.
            pub seed: Option<u64>,
        }

        /// The sampling parameters of an output, with defaults applied.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Sampling {
            $($(#[$doc])+ pub $name: $type,)+
            /// Added to the logits of these tokens.
            pub logit_bias: Vec<(u32, f32)>,
            /// The number of outputs for the prompt.
            pub n: u32,
            /// The seed of the random numbers.
            pub seed: u64,
        }

        /// The names of the rows, in order.
        pub const PARAMETER_NAMES: &[&str] = &[$(stringify!($name)),+];

        impl Sampling {
            /// Samples from the unchanged distribution of the model.
            pub const NEUTRAL: Self = Self { $($name: $neutral,)+ logit_bias: Vec::new(), n: 1, seed: 0 };
        }

        impl SamplingOptions {
            /// Returns the defaults in a model's files.
            fn of_model(model: &SamplingDefaults) -> Self {
                $(let $name: fn(&SamplingDefaults) -> Option<$type> = $default;)+
                Self { $($name: $name(model),)+ ..Self::default() }
            }

            /// Returns the rows as `NAME=VALUE`, for a log. Unset rows are left out.
            #[must_use]
            pub fn described(&self) -> String {
                let rows = [$(self.$name.map(|value| format!("{}={value}", stringify!($name)))),+];
                rows.into_iter().flatten().collect::<Vec<_>>().join(" ")
            }

            /// Returns the values of the rows in force for a request that sets none.
            #[must_use]
            pub fn in_force(&self) -> Self {
                Self { $($name: Some(self.$name.unwrap_or(Sampling::NEUTRAL.$name)),)+ ..Self::default() }
            }

            /// Fails if the value of a row is out of range.
            pub(crate) fn check_ranges(&self) -> Result<(), OutOfRange> {
                $(($range).check(concat!("sampling.", stringify!($name)), self.$name)?;)+
                Ok(())
            }

            /// Fills unset parameters with the model's defaults, then with neutral values.
            pub(crate) fn resolve_defaults(self, model: &Self) -> Sampling {
                Sampling {
                    $($name: self.$name.or(model.$name).unwrap_or(Sampling::NEUTRAL.$name),)+
                    logit_bias: self.logit_bias,
                    n: self.n.unwrap_or(1),
                    seed: self.seed.unwrap_or_else(random_u64),
                }
            }
        }
    };
}

with_sampling_parameters!(define);

impl Sampling {
    /// Selects the most likely token of the model's unchanged distribution.
    pub const GREEDY: Self = {
        let mut sampling = Self::NEUTRAL;
        sampling.temperature = 0.0;
        sampling
    };
}

impl Sampling {
    /// Returns true if logits depend on the tokens before.
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

impl SamplingOptions {
    /// Returns the defaults in a model's files.
    ///
    /// # Errors
    /// [`LoadError::SamplingDefault`]: a value is out of range.
    pub fn recommended(model: &SamplingDefaults) -> Result<Self, LoadError> {
        let options = Self::of_model(model);
        options.check_ranges().map_err(|OutOfRange { field, problem }| LoadError::SamplingDefault {
            file: model.file.clone().unwrap_or_default(),
            parameter: field.to_string().trim_start_matches("sampling.").to_owned(),
            problem,
        })?;
        Ok(options)
    }
}

/// A range of numbers. No range has NaN.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    least: f64,
    most: f64,
    includes_least: bool,
}

impl Range {
    /// All numbers.
    const ANY: Self = Self::from_to(f64::MIN, f64::MAX);

    /// Returns the range from `least` to `most`, both included.
    pub(crate) const fn from_to(least: f64, most: f64) -> Self {
        Self { least, most, includes_least: true }
    }

    /// Returns the range above `least`, up to `most`.
    const fn above(least: f64, most: f64) -> Self {
        Self { least, most, includes_least: false }
    }

    /// Fails if a value is set and out of range.
    pub(crate) fn check<T: Copy + Display + Into<f64>>(
        self,
        field: impl Into<Path>,
        value: Option<T>,
    ) -> Result<(), OutOfRange> {
        match value {
            Some(value) if !self.contains(value.into()) => {
                Err(OutOfRange { field: field.into(), problem: format!("must be {self}, is {value}") })
            }
            _ => Ok(()),
        }
    }

    fn contains(self, value: f64) -> bool {
        value <= self.most && (value > self.least || self.includes_least && value == self.least)
    }
}

/// A value out of its range.
#[derive(Debug)]
pub(crate) struct OutOfRange {
    /// The path of the field.
    field: Path,
    /// The range and the value.
    problem: String,
}

impl From<OutOfRange> for RequestError {
    fn from(OutOfRange { field, problem }: OutOfRange) -> Self {
        Self::Invalid { field, problem }
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, includes_least } = self;
        if *includes_least { write!(f, "{least} to {most}") } else { write!(f, "above {least} and at most {most}") }
    }
}
