//! Sampling from logits, compared with transformers 5.23 (`generation/logits_process.py`). The
//! expected values come from its processors, in the order of `generate`, on the same logits.

use tandem_core::error::StepError;
use tandem_core::sampling::{Logprobs, Sampling, distribution, uniform};

use tandem_tests::host_sampler::Sampler;

const LOGITS: [f32; 12] = [2.5, -1.0, 0.5, 3.0, 3.0, -4.0, 1.25, 0.0, 2.0, -0.5, 1.0, -2.0];
const PROMPT: [u32; 4] = [3, 5, 3, 8];

const OFF: Sampling = {
    let mut off = Sampling::GREEDY;
    off.temperature = 1.0;
    off
};

/// Temperature, top-k, top-p, min-p, repetition penalty; the tokens that transformers keeps, with
/// their probabilities.
type Case = (f32, u32, f32, f32, f32, &'static [(u32, f64)]);

#[rustfmt::skip]
const CASES: &[Case] = &[
    (1.0, 0, 1.0, 0.0, 1.0, &[(0, 0.174714), (1, 0.005276), (2, 0.023645), (3, 0.288055), (4, 0.288055), (5, 0.000263), (6, 0.050057), (7, 0.014341), (8, 0.10597), (9, 0.008699), (10, 0.038984), (11, 0.001941)]),
    (0.5, 0, 1.0, 0.0, 1.0, &[(0, 0.143577), (1, 0.000131), (2, 0.00263), (3, 0.390284), (4, 0.390284), (5, 0.0), (6, 0.011786), (7, 0.000967), (8, 0.052819), (9, 0.000356), (10, 0.007148), (11, 1.8e-05)]),
    (3.0, 0, 1.0, 0.0, 1.0, &[(0, 0.134409), (1, 0.041855), (2, 0.069008), (3, 0.158786), (4, 0.158786), (5, 0.015398), (6, 0.088608), (7, 0.058414), (8, 0.113775), (9, 0.049446), (10, 0.081523), (11, 0.029991)]),
    (1.0, 1, 1.0, 0.0, 1.0, &[(3, 0.5), (4, 0.5)]), // A tie with the K-th token is kept.
    (1.0, 3, 1.0, 0.0, 1.0, &[(0, 0.232697), (3, 0.383652), (4, 0.383652)]),
    (2.0, 5, 1.0, 0.0, 1.0, &[(0, 0.204829), (3, 0.263006), (4, 0.263006), (6, 0.109637), (8, 0.159521)]),
    (1.0, 40, 1.0, 0.0, 1.0, &[(0, 0.174714), (1, 0.005276), (2, 0.023645), (3, 0.288055), (4, 0.288055), (5, 0.000263), (6, 0.050057), (7, 0.014341), (8, 0.10597), (9, 0.008699), (10, 0.038984), (11, 0.001941)]),
    (1.0, 0, 0.3, 0.0, 1.0, &[(3, 0.5), (4, 0.5)]), // The token that reaches top-p is kept.
    (1.0, 0, 0.9, 0.0, 1.0, &[(0, 0.19266), (3, 0.317643), (4, 0.317643), (6, 0.055198), (8, 0.116854)]),
    (1.0, 0, 1.0, 0.1, 1.0, &[(0, 0.18472), (3, 0.304551), (4, 0.304551), (6, 0.052923), (8, 0.112038), (10, 0.041217)]),
    (1.0, 0, 1.0, 1.0, 1.0, &[(3, 0.5), (4, 0.5)]),
    (2.0, 0, 1.0, 0.3, 1.0, &[(0, 0.18676), (3, 0.239804), (4, 0.239804), (6, 0.099965), (8, 0.145448), (10, 0.088219)]),
    (1.0, 0, 1.0, 0.0, 1.3, &[(0, 0.213918), (1, 0.00646), (2, 0.028951), (3, 0.176494), (4, 0.352692), (5, 9.7e-05), (6, 0.061289), (7, 0.017559), (8, 0.081782), (9, 0.01065), (10, 0.047732), (11, 0.002376)]),
    (1.0, 4, 1.0, 0.0, 0.7, &[(0, 0.099584), (3, 0.593901), (4, 0.164186), (8, 0.142329)]),
    (0.8, 6, 0.8, 0.05, 1.2, &[(0, 0.258515), (3, 0.258515), (4, 0.48297)]),
    (1.5, 7, 0.95, 0.2, 0.9, &[(0, 0.173252), (3, 0.301962), (4, 0.241792), (6, 0.075295), (8, 0.143964), (10, 0.063736)]),
];

#[track_caller]
fn check(case: &Case) {
    let &(temperature, top_k, top_p, min_p, repetition_penalty, expected) = case;
    assert_kept(&Sampling { temperature, top_k, top_p, min_p, repetition_penalty, ..OFF }, expected);
}

#[test]
fn kept_tokens_match_transformers() {
    CASES.iter().for_each(check);
}

/// Uses 50,000 tokens in scattered order: top-p, temperature, and the number of tokens that
/// transformers keeps, with the sum of their ids.
#[test]
fn top_p_nucleus_matches_transformers_at_any_size() {
    let logits: Vec<f32> = (0..50_000_u64).map(|i| (i * 7919 % 50_000) as f32 / 2500.0).collect();
    for (top_p, temperature, count, sum) in
        [(0.5, 1.0, 1733, 43_358_031), (0.95, 3.0, 22_289, 557_260_505), (0.95, 10.0, 43_070, 1_076_779_185_u64)]
    {
        let kept = distribution(&Sampling { top_p, temperature, ..OFF }, &[], &[], &logits).expect("finite");
        // The sums are in f32, so a few of the least likely tokens at the limit of top-p may
        // differ.
        assert!(kept.len().abs_diff(count) <= 8, "{} kept, not {count}", kept.len());
        let total: u64 = kept.iter().map(|(id, _)| u64::from(*id)).sum();
        assert!(total.abs_diff(sum) <= 8 * 50_000);
        assert!(kept.is_sorted_by_key(|(id, _)| *id));
    }
}

/// The reference of SplitMix64 states its first value for seed 0: 0xe220a8397b1dcdaf. The other
/// values were computed with Python integers.
#[test]
fn random_numbers_depend_only_on_seed_output_and_position() {
    for (seed, output, position, expected) in [
        (0, 0, 0, 0.138_709_410_145_554_27),
        (0, 0, 1, 0.184_366_674_299_576_76),
        (0, 1, 0, 0.269_130_319_590_454),
        (1, 0, 0, 0.693_512_139_010_229_2),
        (u64::MAX, 0, 8191, 0.217_574_805_527_283_25),
        (42, 3, 100, 0.925_964_506_920_775_6),
    ] {
        let random: f64 = uniform(seed, output, position);
        assert!((random - expected).abs() < 1e-15, "({seed}, {output}, {position}) gives {random}");
    }
}

#[test]
fn sampling_frequencies_match_token_probabilities() {
    let expected = distribution(&OFF, &[], &[], &LOGITS).expect("finite");
    let mut sampler = Sampler::new(Sampling { seed: 7, ..OFF }, &[]);
    let mut drawn = [0_u32; LOGITS.len()];
    const DRAWS: u32 = 40_000;
    for position in 0..u64::from(DRAWS) {
        drawn[sampler.next(&mut LOGITS.clone(), position, &[]).expect("finite") as usize] += 1;
    }
    for (id, probability) in expected {
        let share = f64::from(drawn[id as usize]) / f64::from(DRAWS);
        let deviation = (probability * (1.0 - probability) / f64::from(DRAWS)).sqrt();
        assert!((share - probability).abs() < 5.0 * deviation + 1e-9, "{id}: {share} drawn, {probability} likely");
    }
}

#[test]
fn seeded_token_at_a_position_does_not_depend_on_earlier_draws() {
    let sampling = Sampling { seed: 3, ..OFF };
    let at = |sampler: &mut Sampler, position| sampler.next(&mut LOGITS.clone(), position, &[]).expect("finite");
    let mut straight = Sampler::new(sampling.clone(), &PROMPT);
    let tokens: Vec<u32> = (4..40).map(|position| at(&mut straight, position)).collect();
    let mut resumed = Sampler::new(sampling, &[PROMPT.as_slice(), &tokens[..20]].concat());
    let rest: Vec<u32> = (24..40).map(|position| at(&mut resumed, position)).collect();
    assert_eq!(rest, tokens[20..]);
}

#[test]
fn greedy_picks_the_first_maximum_and_penalizes_its_output() {
    let mut sampler = Sampler::new(Sampling { repetition_penalty: 2.0, ..Sampling::GREEDY }, &[]);
    let tokens: Vec<u32> =
        (0..4).map(|position| sampler.next(&mut LOGITS.clone(), position, &[]).expect("finite")).collect();
    assert_eq!(tokens, [3, 4, 0, 8]);
}

#[test]
fn extreme_sampling_settings_choose_a_valid_token() {
    for sampling in [
        Sampling { temperature: 1e-45, ..OFF },
        Sampling { temperature: 100.0, top_p: f32::MIN_POSITIVE, ..OFF },
        Sampling { repetition_penalty: 1e-45, ..OFF },
        Sampling { repetition_penalty: 100.0, top_k: u32::MAX, ..OFF },
        Sampling { repetition_penalty: 1e-45, ..Sampling::GREEDY },
    ] {
        let id = Sampler::new(sampling.clone(), &PROMPT).next(&mut LOGITS.clone(), 0, &[]).expect("finite");
        assert!(id < 12, "{sampling:?}");
    }
}

#[test]
fn non_finite_logits_are_an_error() {
    for broken in [[f32::NAN; 3], [f32::NEG_INFINITY; 3], [0.0, f32::INFINITY, 1.0]] {
        for sampling in [OFF, Sampling::GREEDY] {
            let chosen = Sampler::new(sampling, &[]).next(&mut broken.clone(), 0, &[]);
            assert!(matches!(chosen, Err(StepError::NotFinite)), "{broken:?}: {chosen:?}");
        }
    }
}

/// Temperature, top-k, typical-p; the tokens that transformers' TypicalLogitsWarper keeps, with
/// their probabilities.
type TypicalCase = (f32, u32, f32, &'static [(u32, f64)]);

#[rustfmt::skip]
const TYPICAL: &[TypicalCase] = &[
    (1.0, 0, 0.2, &[(0, 0.622459), (8, 0.377541)]),
    (1.0, 0, 0.5, &[(0, 0.203916), (3, 0.336201), (4, 0.336201), (8, 0.123681)]),
    (1.0, 0, 0.9, &[(0, 0.19266), (3, 0.317643), (4, 0.317643), (6, 0.055198), (8, 0.116854)]),
    (2.0, 0, 0.6, &[(0, 0.18676), (3, 0.239804), (4, 0.239804), (6, 0.099965), (8, 0.145448), (10, 0.088219)]),
    (0.7, 6, 0.95, &[(0, 0.179372), (3, 0.366409), (4, 0.366409), (8, 0.08781)]),
];

#[track_caller]
fn assert_kept(sampling: &Sampling, expected: &[(u32, f64)]) {
    let kept = distribution(sampling, &PROMPT, &[], &LOGITS).expect("finite");
    let ids = |kept: &[(u32, f64)]| kept.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&kept), ids(expected), "{sampling:?}");
    for ((id, probability), (_, reference)) in kept.iter().zip(expected) {
        assert!((probability - reference).abs() < 2e-6, "{sampling:?}: {id} has {probability}, not {reference}");
    }
}

#[test]
fn typical_p_tokens_match_transformers() {
    for &(temperature, top_k, typical_p, expected) in TYPICAL {
        assert_kept(&Sampling { temperature, top_k, typical_p, ..OFF }, expected);
    }
}

/// transformers' SequenceBiasLogitsProcessor, then its RepetitionPenaltyLogitsProcessor.
#[test]
#[rustfmt::skip]
fn logit_bias_is_applied_before_the_repetition_penalty() {
    let sampling = Sampling { logit_bias: vec![(3, -1.5), (5, 4.0), (0, 0.25)], repetition_penalty: 1.3, ..OFF };
    assert_kept(&sampling, &[(0, 0.286899), (1, 0.006747), (2, 0.030239), (3, 0.058147), (4, 0.368386), (5, 0.018341), (6, 0.064016), (7, 0.018341), (8, 0.085421), (9, 0.011124), (10, 0.049856), (11, 0.002482)]);
}

/// OpenAI's formula: the count times the frequency penalty, and the presence penalty once. The
/// prompt is excluded.
#[test]
fn presence_and_frequency_penalties_ignore_the_prompt() {
    let sampling = Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::GREEDY };
    let mut sampler = Sampler::new(sampling, &[3, 3, 3]);
    let tokens: Vec<u32> = (0..9).map(|at| sampler.next(&mut LOGITS.clone(), at, &[]).expect("finite")).collect();
    // 3.0 and 3.0 fall to 2.25, below 2.5, which falls to 1.75. Then 2.25 falls to 2.0, and the
    // other 2.0 follows because of its higher id.
    assert_eq!(tokens, [3, 4, 0, 3, 4, 3, 4, 8, 0]);
    let encouraged = Sampling { presence_penalty: -2.0, ..Sampling::GREEDY };
    let mut sampler = Sampler::new(encouraged, &[]);
    assert_eq!([0, 1, 2].map(|at| sampler.next(&mut LOGITS.clone(), at, &[]).expect("finite")), [3, 3, 3]);
}

#[test]
fn forbidden_tokens_are_never_chosen() {
    let mut sampler = Sampler::new(Sampling::GREEDY, &[]);
    assert_eq!(sampler.next(&mut LOGITS.clone(), 0, &[3, 4, 99]).expect("finite"), 0);
    let mut warm = Sampler::new(Sampling { temperature: 100.0, ..OFF }, &[]);
    for position in 0..2000 {
        let id = warm.next(&mut LOGITS.clone(), position, &[0, 1, 2, 3]).expect("finite");
        assert!(id > 3);
    }
}

/// torch's log_softmax.
#[test]
fn logprobs_match_log_softmax_of_the_raw_logits() {
    let logprobs = Logprobs::new(&LOGITS, 6, 4);
    let close = |found: f32, expected: f32| (found - expected).abs() < 2e-6;
    assert!(close(logprobs.logprob, -2.994602), "{logprobs:?}");
    let expected = [(3, -1.244602), (4, -1.244602), (0, -1.744602), (8, -2.244602)];
    assert_eq!(logprobs.top.len(), 4);
    for (found, expected) in logprobs.top.iter().zip(expected) {
        assert!(found.0 == expected.0 && close(found.1, expected.1), "{logprobs:?}");
    }
    assert!(Logprobs::new(&LOGITS, 0, 0).top.is_empty());
    assert_eq!(Logprobs::new(&LOGITS, 0, 20).top.len(), 12);
}
