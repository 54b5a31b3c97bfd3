//! Characters whose Unicode properties may differ between the two encoders.

/// Ranges (first, last) of the characters that only the fast encoder's Unicode tables contain. They
/// are new letters, marks, digits and symbols of Unicode 17, and marks that the older normalization
/// table lacks. Gaps of unassigned or equally rare characters are included. The list was made by
/// encoding every character in several contexts and by comparing the tables.
#[rustfmt::skip] // one range per line would be too long
const DOUBTFUL: &[(char, char)] = &[
    ('\u{7FD}', '\u{7FD}'), ('\u{88F}', '\u{88F}'), ('\u{897}', '\u{89F}'), ('\u{8CA}', '\u{8D3}'),
    ('\u{9FE}', '\u{9FE}'), ('\u{C3C}', '\u{C3C}'), ('\u{C5C}', '\u{C5C}'), ('\u{CDC}', '\u{CDC}'),
    ('\u{D3B}', '\u{D3C}'), ('\u{EBA}', '\u{EBA}'), ('\u{1715}', '\u{1715}'), ('\u{1ABF}', '\u{1ADD}'),
    ('\u{1AE0}', '\u{1AEB}'), ('\u{1DF6}', '\u{1DFA}'), ('\u{20C1}', '\u{20C1}'), ('\u{2B96}', '\u{2B96}'),
    ('\u{A7CE}', '\u{A7CF}'), ('\u{A7D2}', '\u{A7D2}'), ('\u{A7D4}', '\u{A7D4}'), ('\u{A7F1}', '\u{A7F1}'),
    ('\u{A82C}', '\u{A82C}'), ('\u{FBC3}', '\u{FBD2}'), ('\u{FD90}', '\u{FD91}'), ('\u{FDC8}', '\u{FDCE}'),
    ('\u{105C9}', '\u{105E4}'), ('\u{10940}', '\u{10959}'), ('\u{10D24}', '\u{10D27}'), ('\u{10D69}', '\u{10D6D}'),
    ('\u{10EAB}', '\u{10EAC}'), ('\u{10EC5}', '\u{10ED8}'), ('\u{10EFA}', '\u{10EFF}'), ('\u{10F46}', '\u{10F50}'),
    ('\u{10F82}', '\u{10F85}'), ('\u{11070}', '\u{11070}'), ('\u{1133B}', '\u{1133B}'), ('\u{11382}', '\u{11391}'),
    ('\u{113B8}', '\u{113D0}'), ('\u{1145E}', '\u{1145E}'), ('\u{11839}', '\u{1183A}'), ('\u{11930}', '\u{11943}'),
    ('\u{119E0}', '\u{119E0}'), ('\u{11A34}', '\u{11A34}'), ('\u{11A47}', '\u{11A47}'), ('\u{11A99}', '\u{11A99}'),
    ('\u{11B60}', '\u{11B67}'), ('\u{11D42}', '\u{11D45}'), ('\u{11D97}', '\u{11D97}'), ('\u{11DB0}', '\u{11DE9}'),
    ('\u{11F41}', '\u{11F42}'), ('\u{1611E}', '\u{1612F}'), ('\u{16D63}', '\u{16D6A}'), ('\u{16EA0}', '\u{16ED3}'),
    ('\u{16FF0}', '\u{16FF6}'), ('\u{187F8}', '\u{187FF}'), ('\u{18D09}', '\u{18D1E}'), ('\u{18D80}', '\u{18DF2}'),
    ('\u{1CCFA}', '\u{1CCFC}'), ('\u{1CEBA}', '\u{1CEF0}'), ('\u{1E08F}', '\u{1E08F}'), ('\u{1E130}', '\u{1E136}'),
    ('\u{1E2AE}', '\u{1E2AE}'), ('\u{1E2EC}', '\u{1E2EF}'), ('\u{1E4EC}', '\u{1E4EF}'), ('\u{1E5EE}', '\u{1E5EF}'),
    ('\u{1E6C0}', '\u{1E6FF}'), ('\u{1F6D8}', '\u{1F6D8}'), ('\u{1F777}', '\u{1F77A}'), ('\u{1F8D0}', '\u{1F8D8}'),
    ('\u{1FA54}', '\u{1FA57}'), ('\u{1FA8A}', '\u{1FA8A}'), ('\u{1FA8E}', '\u{1FA8E}'), ('\u{1FAC8}', '\u{1FAC8}'),
    ('\u{1FACD}', '\u{1FACD}'), ('\u{1FAEA}', '\u{1FAEA}'), ('\u{1FAEF}', '\u{1FAEF}'), ('\u{1FBFA}', '\u{1FBFA}'),
    ('\u{2B73A}', '\u{2B73F}'), ('\u{2CEA2}', '\u{2CEAD}'), ('\u{323B0}', '\u{33479}'),
];

/// Returns true if a text contains a character that requires the classic encoder.
pub(super) fn is_doubtful(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(is_listed)
}

fn is_listed(char: char) -> bool {
    match char {
        // Fast path for nearly all text: these intervals contain no listed character.
        '\0'..'\u{7FD}' | '\u{3000}'..'\u{A7CE}' | '\u{AC00}'..'\u{FB00}' => false,
        _ => {
            let next = DOUBTFUL.partition_point(|(first, _)| *first <= char);
            next > 0 && char <= DOUBTFUL[next - 1].1
        }
    }
}
