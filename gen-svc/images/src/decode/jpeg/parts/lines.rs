//! Some rows of a JPEG image, by libjpeg's own functions: the crate `mozjpeg` cannot skip rows.

use std::mem::MaybeUninit;
use std::os::raw::{c_int, c_ulong};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use mozjpeg_sys::{
    J_COLOR_SPACE, J_DCT_METHOD, boolean, jpeg_common_struct, jpeg_create_decompress, jpeg_decompress_struct,
    jpeg_destroy_decompress, jpeg_error_mgr, jpeg_finish_decompress, jpeg_has_multiple_scans, jpeg_mem_src,
    jpeg_read_header, jpeg_read_scanlines, jpeg_skip_scanlines, jpeg_start_decompress, jpeg_std_error,
};

use crate::image::CHANNELS;

/// The start of a file whose rows can be read.
pub(super) struct Lines<'a>(Decompress<'a>);

impl<'a> Lines<'a> {
    /// Reads the header. Returns `None` for a file whose rows cannot be skipped or are not RGB, YCbCr
    /// or gray.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let jpeg = caught(|| Decompress::new(bytes))?;
        let kinds = [J_COLOR_SPACE::JCS_RGB, J_COLOR_SPACE::JCS_YCbCr, J_COLOR_SPACE::JCS_GRAYSCALE];
        (jpeg.is_skippable() && kinds.contains(&jpeg.info.jpeg_color_space)).then_some(Self(jpeg))
    }

    /// Reads whole rows of RGB from row `first` on. Returns false if the file is damaged.
    pub(super) fn read(self, first: usize, stride: usize, out: &mut [u8]) -> bool {
        let Self(mut jpeg) = self;
        caught(|| jpeg.read(first, stride, out)).is_some()
    }
}

/// Runs `work`. libjpeg's errors unwind the stack.
fn caught<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}

/// libjpeg's state. The fields have fixed addresses, because libjpeg keeps them.
struct Decompress<'a> {
    info: Box<jpeg_decompress_struct>,
    errors: Box<jpeg_error_mgr>,
    bytes: &'a [u8],
}

impl<'a> Decompress<'a> {
    /// Reads a file's header.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut jpeg = Self { info: zeroed(), errors: zeroed(), bytes };
        let length = c_ulong::try_from(jpeg.bytes.len()).ok()?;
        #[allow(unsafe_code)]
        // SAFETY: the errors and the bytes live at least as long as the state that refers to them.
        let found = unsafe {
            jpeg_std_error(&mut jpeg.errors);
            jpeg.errors.error_exit = Some(fail);
            jpeg.errors.emit_message = Some(count_warning);
            jpeg.info.common.err = ptr::from_mut(&mut *jpeg.errors);
            jpeg_create_decompress(&mut *jpeg.info);
            jpeg_mem_src(&mut jpeg.info, jpeg.bytes.as_ptr(), length);
            jpeg_read_header(&mut jpeg.info, boolean::from(true))
        };
        (found == 1).then_some(jpeg)
    }

    /// Returns true if rows are decoded while the file is read.
    fn is_skippable(&self) -> bool {
        #[allow(unsafe_code)]
        // SAFETY: the header was read.
        unsafe {
            jpeg_has_multiple_scans(&self.info) == 0
        }
    }

    /// Reads whole rows, and after the last one the rest of the file. Fails after a warning.
    fn read(&mut self, first: usize, stride: usize, out: &mut [u8]) -> Option<()> {
        self.info.out_color_space = J_COLOR_SPACE::JCS_RGB;
        self.info.dct_method = J_DCT_METHOD::JDCT_ISLOW;
        self.info.do_fancy_upsampling = boolean::from(true);
        self.start(stride)?;
        self.skip(first)?;
        out.chunks_exact_mut(stride).try_for_each(|row| self.read_row(row))?;
        if self.info.output_scanline == self.info.output_height {
            self.finish()?;
        }
        (self.errors.num_warnings == 0).then_some(())
    }

    /// Starts to decode rows of `stride` bytes.
    fn start(&mut self, stride: usize) -> Option<()> {
        #[allow(unsafe_code)]
        // SAFETY: the header was read.
        let is_started = unsafe { jpeg_start_decompress(&mut self.info) } != 0;
        (is_started && self.info.output_width as usize * CHANNELS == stride).then_some(())
    }

    fn skip(&mut self, rows: usize) -> Option<()> {
        let rows = u32::try_from(rows).ok().filter(|rows| *rows < self.info.output_height)?;
        #[allow(unsafe_code)]
        // SAFETY: decoding was started, and its source is in memory.
        let skipped = unsafe { jpeg_skip_scanlines(&mut self.info, rows) };
        (skipped == rows).then_some(())
    }

    /// Reads a row. Its length was compared by `start`.
    fn read_row(&mut self, row: &mut [u8]) -> Option<()> {
        let mut start = row.as_mut_ptr();
        #[allow(unsafe_code)]
        // SAFETY: decoding was started, and the row has the bytes of a row.
        let read = unsafe { jpeg_read_scanlines(&mut self.info, &raw mut start, 1) };
        (read == 1).then_some(())
    }

    fn finish(&mut self) -> Option<()> {
        #[allow(unsafe_code)]
        // SAFETY: all rows were read.
        let is_finished = unsafe { jpeg_finish_decompress(&mut self.info) } != 0;
        is_finished.then_some(())
    }
}

impl Drop for Decompress<'_> {
    fn drop(&mut self) {
        #[allow(unsafe_code)]
        // SAFETY: the state was created, or is all zero, which libjpeg accepts.
        unsafe {
            jpeg_destroy_decompress(&mut self.info);
        }
    }
}

/// Returns a structure of libjpeg before it is filled.
fn zeroed<T>() -> Box<T> {
    #[allow(unsafe_code)]
    // SAFETY: libjpeg's structures consist of numbers, pointers and optional functions.
    unsafe {
        Box::new(MaybeUninit::zeroed().assume_init())
    }
}

/// Leaves libjpeg. The whole decoder reports the error.
#[allow(unsafe_code)]
unsafe extern "C-unwind" fn fail(_: &mut jpeg_common_struct) {
    resume_unwind(Box::new(()));
}

/// Counts warnings, whose level is below zero, and writes nothing.
#[allow(unsafe_code)]
unsafe extern "C-unwind" fn count_warning(info: &mut jpeg_common_struct, level: c_int) {
    if level < 0 {
        // SAFETY: the errors live as long as the state.
        unsafe { (*info.err).num_warnings += 1 };
    }
}
