//! ggml's tensor types.

/// The storage format of a tensor: blocks with a fixed count of numbers and a fixed size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)] // ggml's own names, which error messages show
pub enum GgmlType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
}

/// Id in the file, type, numbers per block, bytes per block. Ids that ggml has withdrawn are
/// omitted.
const TYPES: &[(u32, GgmlType, u64, u64)] = &[
    (0, GgmlType::F32, 1, 4),
    (1, GgmlType::F16, 1, 2),
    (2, GgmlType::Q4_0, 32, 18),
    (3, GgmlType::Q4_1, 32, 20),
    (6, GgmlType::Q5_0, 32, 22),
    (7, GgmlType::Q5_1, 32, 24),
    (8, GgmlType::Q8_0, 32, 34),
    (9, GgmlType::Q8_1, 32, 36),
    (10, GgmlType::Q2_K, 256, 84),
    (11, GgmlType::Q3_K, 256, 110),
    (12, GgmlType::Q4_K, 256, 144),
    (13, GgmlType::Q5_K, 256, 176),
    (14, GgmlType::Q6_K, 256, 210),
    (15, GgmlType::Q8_K, 256, 292),
    (16, GgmlType::IQ2_XXS, 256, 66),
    (17, GgmlType::IQ2_XS, 256, 74),
    (18, GgmlType::IQ3_XXS, 256, 98),
    (19, GgmlType::IQ1_S, 256, 50),
    (20, GgmlType::IQ4_NL, 32, 18),
    (21, GgmlType::IQ3_S, 256, 110),
    (22, GgmlType::IQ2_S, 256, 82),
    (23, GgmlType::IQ4_XS, 256, 136),
    (24, GgmlType::I8, 1, 1),
    (25, GgmlType::I16, 1, 2),
    (26, GgmlType::I32, 1, 4),
    (27, GgmlType::I64, 1, 8),
    (28, GgmlType::F64, 1, 8),
    (29, GgmlType::IQ1_M, 256, 56),
    (30, GgmlType::BF16, 1, 2),
    (34, GgmlType::TQ1_0, 256, 54),
    (35, GgmlType::TQ2_0, 256, 66),
    (39, GgmlType::MXFP4, 32, 17),
    (40, GgmlType::NVFP4, 64, 36),
    (41, GgmlType::Q1_0, 128, 18),
];

impl GgmlType {
    /// Returns the type with this id, or None if ggml does not define the id.
    pub fn from_id(id: u32) -> Option<Self> {
        TYPES.iter().find(|row| row.0 == id).map(|row| row.1)
    }

    /// Returns the count of numbers in a block.
    pub fn block_len(self) -> u64 {
        self.row().2
    }

    /// Returns the size of a block in bytes.
    pub fn block_bytes(self) -> u64 {
        self.row().3
    }

    fn row(self) -> &'static (u32, Self, u64, u64) {
        // The variants are declared in the table's order.
        &TYPES[self as usize]
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}
