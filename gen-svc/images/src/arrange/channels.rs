//! The channels of a row of pixels.

use crate::image::CHANNELS;

/// Writes the channels of `width` pixels to the starts of the planes. May write more bytes of a plane,
/// if `pixels` has more.
pub(super) fn split(pixels: &[u8], width: usize, planes: [&mut [u8]; CHANNELS]) {
    let [red, green, blue] = planes;
    let done = split_blocks(pixels, width, [&mut *red, &mut *green, &mut *blue]);
    if done >= width {
        return;
    }
    let rest = red[done..width].iter_mut().zip(&mut green[done..]).zip(&mut blue[done..]);
    for (pixel, ((red, green), blue)) in pixels[done * CHANNELS..].as_chunks::<CHANNELS>().0.iter().zip(rest) {
        [*red, *green, *blue] = *pixel;
    }
}

/// Splits blocks of pixels with vector instructions. Returns how many pixels they have: more than
/// `width`, if there is a block at its end.
fn split_blocks(pixels: &[u8], width: usize, planes: [&mut [u8]; CHANNELS]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("ssse3") {
        let [red, green, blue] = planes.map(|plane| plane.as_chunks_mut().0);
        let blocks = pixels.as_chunks::<{ ssse3::BLOCK * CHANNELS }>().0;
        let count = width.div_ceil(ssse3::BLOCK).min(blocks.len()).min(red.len());
        for (block, ((red, green), blue)) in blocks[..count].iter().zip(red.iter_mut().zip(green).zip(blue)) {
            #[allow(unsafe_code)]
            // SAFETY: the processor has the instructions that the function is compiled for.
            unsafe {
                ssse3::split_block(block, [red, green, blue]);
            }
        }
        return count * ssse3::BLOCK;
    }
    let _ = (pixels, width, planes);
    0
}

#[cfg(target_arch = "x86_64")]
mod ssse3 {
    use std::arch::x86_64::*;

    use super::CHANNELS;

    /// The pixels of a block: as many as a vector has bytes.
    pub(super) const BLOCK: usize = 16;

    /// For each channel and each third of a block: the byte of the third that a place of the plane takes,
    /// or a number that gives zero.
    const PLACES: [[[u8; BLOCK]; CHANNELS]; CHANNELS] = {
        let mut places = [[[0x80; BLOCK]; CHANNELS]; CHANNELS];
        let mut byte = 0;
        while byte < BLOCK * CHANNELS {
            places[byte % CHANNELS][byte / BLOCK][byte / CHANNELS] = (byte % BLOCK) as u8;
            byte += 1;
        }
        places
    };

    /// Writes the channels of a block.
    #[target_feature(enable = "ssse3")]
    pub(super) fn split_block(pixels: &[u8; BLOCK * CHANNELS], planes: [&mut [u8; BLOCK]; CHANNELS]) {
        let thirds = pixels.as_chunks::<BLOCK>().0;
        for (places, plane) in PLACES.iter().zip(planes) {
            let mut vector = _mm_setzero_si128();
            for (third, places) in thirds.iter().zip(places) {
                vector = _mm_or_si128(vector, _mm_shuffle_epi8(load(third), load(places)));
            }
            store(vector, plane);
        }
    }

    #[allow(unsafe_code)]
    fn load(bytes: &[u8; BLOCK]) -> __m128i {
        // SAFETY: an array of 16 bytes is read, at any alignment. Every x86-64 has the instruction.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[allow(unsafe_code)]
    fn store(vector: __m128i, bytes: &mut [u8; BLOCK]) {
        // SAFETY: an array of 16 bytes is written, at any alignment. Every x86-64 has the instruction.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plane_has_its_channel() {
        for (width, more) in (1..70_usize).flat_map(|width| [0, 3, 20].map(|more| (width, more))) {
            let pixels: Vec<u8> = (0..(width + more) * CHANNELS).map(|index| (index * 7 + width) as u8).collect();
            let mut planes = [(); CHANNELS].map(|()| vec![0; width + more]);
            split(&pixels, width, planes.each_mut().map(Vec::as_mut_slice));
            for (channel, plane) in planes.iter().enumerate() {
                let expected = pixels.iter().skip(channel).step_by(CHANNELS).take(width);
                assert!(plane[..width].iter().eq(expected), "{width}, {more}, {channel}");
            }
        }
    }
}
