//! Damaged and hostile images: each is a typed error or an image, never a panic.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use mozjpeg::ColorSpaceExt as _;
use tandem_images::{Filter, Format, ImageError, Limits, RgbImage, decode, resize, sniff};

const WIDTH: u16 = 19;
const HEIGHT: u16 = 13;

/// The width and the height of an image.
type Sides = (u16, u16);

const SMALL: Sides = (WIDTH, HEIGHT);
/// An image whose buffers are kept for the next one, and whose JPEG file is decoded in parts.
const LARGE: Sides = (601, 439);

fn pixels((width, height): Sides, channels: usize) -> Vec<u8> {
    (0..usize::from(width) * usize::from(height) * channels).map(|index| (index * 37 % 251) as u8).collect()
}

fn jpeg(progressive: bool) -> Vec<u8> {
    jpeg_of(SMALL, mozjpeg::ColorSpace::JCS_RGB, progressive)
}

fn jpeg_of(sides: Sides, color: mozjpeg::ColorSpace, progressive: bool) -> Vec<u8> {
    let mut encoder = mozjpeg::Compress::new(color);
    encoder.set_size(sides.0.into(), sides.1.into());
    if !progressive {
        encoder.set_fastest_defaults();
    }
    let mut started = encoder.start_compress(Vec::new()).unwrap();
    started.write_scanlines(&pixels(sides, color.num_components())).unwrap();
    started.finish().unwrap()
}

fn png(exif: Option<Vec<u8>>) -> Vec<u8> {
    png_of(SMALL, exif)
}

fn png_of(sides: Sides, exif: Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut info = png::Info::with_size(sides.0.into(), sides.1.into());
    info.color_type = png::ColorType::Rgba;
    info.bit_depth = png::BitDepth::Eight;
    info.exif_metadata = exif.map(Into::into);
    let encoder = png::Encoder::with_info(&mut out, info).unwrap();
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&pixels(sides, 4)).unwrap();
    writer.finish().unwrap();
    out
}

fn webp_of(sides: Sides) -> Vec<u8> {
    let mut out = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut out);
    encoder.encode(&pixels(sides, 3), sides.0.into(), sides.1.into(), image_webp::ColorType::Rgb8).unwrap();
    out
}

fn gif(frames: usize) -> Vec<u8> {
    gif_of(SMALL, frames)
}

fn gif_of((width, height): Sides, frames: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let palette: Vec<u8> = (0..=255).flat_map(|value| [value, 255 - value, 7]).collect();
    let mut encoder = gif::Encoder::new(&mut out, width, height, &palette).unwrap();
    for _ in 0..frames {
        let buffer = pixels((width, height), 1).into();
        encoder.write_frame(&gif::Frame { width, height, buffer, ..gif::Frame::default() }).unwrap();
    }
    drop(encoder);
    out
}

fn bmp() -> Vec<u8> {
    bmp_of(SMALL)
}

fn bmp_of(sides: Sides) -> Vec<u8> {
    let mut out = b"BM".to_vec();
    out.extend([0, 0, 54].map(u32::to_le_bytes).concat());
    out.extend([40, u32::from(sides.0), u32::from(sides.1), 1 | 24 << 16].map(u32::to_le_bytes).concat());
    out.extend([0; 24]);
    let row = usize::from(sides.0) * 3;
    for _ in 0..sides.1 {
        out.extend(pixels(sides, 3).iter().take(row));
        out.extend(vec![0; row.next_multiple_of(4) - row]);
    }
    out
}

/// Returns a BMP file of runs, of which each fills a part of a row.
fn runs_of((width, height): Sides) -> Vec<u8> {
    let mut out = b"BM".to_vec();
    out.extend([0, 0, 54 + 8].map(u32::to_le_bytes).concat());
    out.extend([40, u32::from(width), u32::from(height), 1 | 8 << 16, 1, 0, 0, 0, 2, 0].map(u32::to_le_bytes).concat());
    out.extend([9, 8, 7, 0, 200, 100, 50, 0]);
    for _ in 0..height {
        out.extend([100, 1, 0, 0]);
    }
    out.extend([0, 1]);
    out
}

fn all() -> Vec<Vec<u8>> {
    all_of(SMALL)
}

fn all_of(sides: Sides) -> Vec<Vec<u8>> {
    let rgb = mozjpeg::ColorSpace::JCS_RGB;
    let jpegs = [false, true].map(|progressive| jpeg_of(sides, rgb, progressive));
    jpegs.into_iter().chain([png_of(sides, None), webp_of(sides), gif_of(sides, 1), bmp_of(sides)]).collect()
}

/// Decodes within the default limits. Fails the test on a panic.
#[track_caller]
fn decoded(bytes: &[u8]) -> Result<RgbImage, ImageError> {
    catch_unwind(AssertUnwindSafe(|| decode(bytes, &Limits::default()))).expect("no panic")
}

/// Returns `bytes` with `part` written at `start`.
fn patched(mut bytes: Vec<u8>, start: usize, part: &[u8]) -> Vec<u8> {
    bytes[start..start + part.len()].copy_from_slice(part);
    bytes
}

/// Returns images that declare sides of `side` pixels.
fn with_sides(side: u16) -> Vec<Vec<u8>> {
    let jpeg = jpeg(false);
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let big = side.to_be_bytes();
    let little = side.to_le_bytes();
    let mut header = png(None)[..33].to_vec();
    header[16..24].copy_from_slice(&[[0, 0], big, [0, 0], big].concat());
    let crc = crc32(&header[12..29]).to_be_bytes();
    header[29..].copy_from_slice(&crc);
    vec![
        patched(jpeg, frame + 5, &[big, big].concat()),
        patched(png(None), 0, &header),
        patched(gif(1), 6, &[little, little].concat()),
        patched(bmp(), 18, &[little, [0, 0], little, [0, 0]].concat()),
    ]
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn the_test_images_are_valid() {
    for bytes in all() {
        let image = decoded(&bytes).unwrap();
        assert_eq!((image.width(), image.height()), (WIDTH.into(), HEIGHT.into()));
    }
    assert_eq!(decoded(&gif(1)).unwrap(), decoded(&gif(10_000)).unwrap());
}

#[test]
fn every_truncated_image_is_an_error() {
    for bytes in all() {
        let format = sniff(&bytes).unwrap();
        // Behind the first frame, GIF and WebP have bytes that no pixel depends on.
        let end = bytes.len() - if matches!(format, Format::Gif | Format::WebP) { 8 } else { 0 };
        for length in (0..end).filter(|length| format != Format::Png || *length < end - 12) {
            assert!(decoded(&bytes[..length]).is_err(), "{format} of {length} bytes");
        }
    }
}

#[test]
fn huge_sides_are_refused_by_the_header() {
    for bytes in with_sides(65_535) {
        let format = sniff(&bytes).unwrap();
        let error = decoded(&bytes).unwrap_err();
        // libjpeg itself allows at most 65,500.
        let refused = matches!(error, ImageError::Pixels { width: 65_535, .. }) || format == Format::Jpeg;
        assert!(refused, "{format}: {error}");
    }
    for bytes in with_sides(60_000) {
        let error = decoded(&bytes).unwrap_err();
        assert!(matches!(error, ImageError::Pixels { width: 60_000, height: 60_000, .. }), "{error}");
    }
    let huge_canvas =
        [b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0".as_slice(), &[0; 4], &[0xfe, 0xff, 0xff, 0xfe, 0, 0]].concat();
    assert!(decoded(&huge_canvas).is_err());
}

/// A resize would need memory in proportion to the side.
#[test]
fn a_long_side_of_few_pixels_is_refused() {
    let mut header = png(None)[..33].to_vec();
    header[16..24].copy_from_slice(&[65_536_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat());
    let crc = crc32(&header[12..29]).to_be_bytes();
    header[29..].copy_from_slice(&crc);
    let error = decoded(&patched(png(None), 0, &header)).unwrap_err();
    assert_eq!(error, ImageError::Side { width: 65_536, height: 1, limit: 65_535 });
}

#[test]
fn the_limit_of_pixels_holds_for_each_format() {
    for bytes in all() {
        let limits = Limits { max_pixels: u64::from(WIDTH) * u64::from(HEIGHT) - 1, ..Limits::default() };
        let error = decode(&bytes, &limits).unwrap_err();
        assert!(matches!(error, ImageError::Pixels { .. }), "{error}");
    }
}

#[test]
fn palettes_that_end_within_a_colour_are_errors() {
    let chunk = |name: &[u8], data: &[u8]| {
        let named = [name, data].concat();
        [&(data.len() as u32).to_be_bytes()[..], &named, &crc32(&named).to_be_bytes()].concat()
    };
    let header = [0, 0, 0, 1, 0, 0, 0, 1, 8, 3, 0, 0, 0];
    for bytes in [4, 5] {
        let parts = [chunk(b"IHDR", &header), chunk(b"PLTE", &vec![0; bytes]), chunk(b"IDAT", b"")];
        let error = decoded(&[b"\x89PNG\r\n\x1a\n".as_slice(), &parts.concat()].concat()).unwrap_err();
        assert!(error.to_string().contains("palette"), "{bytes} bytes: {error}");
    }
}

#[test]
fn sides_of_zero_are_errors() {
    for bytes in with_sides(0) {
        assert!(decoded(&bytes).is_err());
    }
}

#[test]
fn unknown_and_too_long_bytes_are_refused() {
    assert_eq!(decoded(b""), Err(ImageError::Format));
    assert_eq!(decoded(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), Err(ImageError::Format));
    let limits = Limits { max_bytes: 10, ..Limits::default() };
    let bytes = bmp();
    assert_eq!(decode(&bytes, &limits), Err(ImageError::Bytes { bytes: bytes.len(), limit: 10 }));
}

#[test]
fn exif_of_16_mib_is_decoded_or_refused() {
    let segment = [&[0xff, 0xe1, 0xff, 0xff][..], b"Exif\0\0MM\0\x2a", &[0xff; 65_523]].concat();
    let jpeg = jpeg(false);
    let long = [&jpeg[..2], &segment.repeat(256), &jpeg[2..]].concat();
    assert_eq!(decoded(&long).unwrap(), decoded(&jpeg).unwrap());
    assert_eq!(decoded(&png(Some(vec![0xff; 16 << 20]))).unwrap(), decoded(&png(None)).unwrap());
}

#[test]
fn damaged_bytes_never_panic() {
    let mut state = 1_u32;
    let mut next = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    for bytes in all() {
        for _ in 0..1500 {
            let mut damaged = bytes.clone();
            for _ in 0..=next(4) {
                let index = next(damaged.len());
                damaged[index] = next(256) as u8;
            }
            drop(decode(&damaged, &Limits { max_pixels: 1 << 20, ..Limits::default() }));
        }
    }
}

/// Keeps buffers with the pixels of another caller's images: all of this byte.
fn keep_others(byte: u8) {
    let (width, height) = (usize::from(LARGE.0), usize::from(LARGE.1));
    let parts = [1, 1, 2, 2, 3, 3, 4, 4, 4, 4];
    drop(parts.map(|part| RgbImage::new(width, height / part, vec![byte; width * (height / part) * 3]).unwrap()));
}

/// Returns files with gaps: truncated ones, also with the format's end behind, and damaged ones.
fn partial(file: &[u8]) -> Vec<Vec<u8>> {
    const PLACES: usize = 8;
    const GAP: usize = 64;
    let end = &file[file.len() - 2..];
    let places = (1..PLACES).map(|place| file.len() * place / PLACES);
    places
        .flat_map(|place| {
            let gap = GAP.min(file.len() - place);
            let damaged = [&file[..place], &vec![0; gap], &file[place + gap..]].concat();
            [file[..place].to_vec(), [&file[..place], end].concat(), damaged]
        })
        .collect()
}

#[test]
fn no_pixel_of_an_image_is_that_of_an_earlier_one() {
    let inks = jpeg_of(LARGE, mozjpeg::ColorSpace::JCS_CMYK, false);
    for file in all_of(LARGE).into_iter().chain([inks, runs_of(LARGE)]) {
        let format = sniff(&file).unwrap();
        for (index, partial) in partial(&file).into_iter().chain([file]).enumerate() {
            let [first, second] = [0x11, 0xee].map(|byte| {
                keep_others(byte);
                let image = decoded(&partial)?;
                keep_others(byte);
                let resized = resize(&image, 333, 257, Filter::Bicubic).into_owned();
                Ok::<_, ImageError>((image, resized))
            });
            assert!(first == second, "{format}, file {index}");
        }
    }
}
